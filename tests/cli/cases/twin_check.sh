# A twin against captures: of itself, of another chip's, without values, and of devices that have none.
capture cnn.w8a8 -d twin:gen3 -p zeros -p uniform:2 -o gen3.h5
capture cnn.w8a8 -d twin:gen1 -p zeros -p uniform:2 -o gen1.h5 --store digest
capture cnn.w8a8 -d emu:half-even -p zeros -o emu.h5
run twin check gen3.h5 gen1.h5
run twin check gen3.h5 --as gen1
run twin check gen1.h5 --as gen3
run twin check gen3.h5 --certificate cert.json -q
run twin check gen3.h5 --certificate cert.json -q
run twin check gen3.h5 --json | grep -v digest
run twin check emu.h5
run twin check emu.h5 --as gen9
run twin check gen3.h5 -p ones
run twin gen3.h5
