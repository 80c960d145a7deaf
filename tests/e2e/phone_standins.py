"""What stands in for Android on the phones of phones.py: what they say that they are, and the programs getprop, dumpsys and
logcat, which plain Linux has not. They answer in the form in which a phone's own do."""

# What the phones say that they are: properties in the form that phones with these chipsets have them.
MODELS = {
    "gen1": ("SM8450", "Xiaomi", "2201123C", "cupid", "13", "33", "Xiaomi/cupid/cupid:13/TKQ1.220807.001/V14.0.8.0.TLCCNXM"),
    "gen2": ("SM8550", "samsung", "SM-S911B", "dm1q", "14", "34", "samsung/dm1qxeea/qssi:14/UP1A.231005.007/S911BXXS3BXD4"),
    "gen3": ("SM8650", "Xiaomi", "23127PN0CC", "houji", "14", "34", "Xiaomi/houji/houji:14/UKQ1.230804.001/V816.0.5.0.UNCCNXM"),
    "gen4": ("SM8750", "OnePlus", "PJZ110", "OP5D55L1", "15", "35", "OnePlus/PJZ110/OP5D55L1:15/AP3A.240617.008/V.1c1bbb6-1"),
    "gen5": ("SM8850", "Xiaomi", "25113PN0EC", "pudding", "16", "36", "Xiaomi/pudding/pudding:16/BP2A.250605.031/OS3.0.12.0"),
}

GETPROP = r"""#!/bin/sh
# A stand-in for Android's getprop, which plain Linux has not: prints the lines of the file 'properties'.
PATH=/usr/bin:/bin
file=$(dirname "$0")/../properties
if [ $# -eq 0 ]; then
    cat "$file"
else
    value=$(grep -F -- "[$1]: " "$file" | sed 's/^[^]]*\]: \[\(.*\)\]$/\1/')
    printf '%s\n' "${value:-${2:-}}"
fi
"""

DUMPSYS = r"""#!/bin/sh
# A stand-in for Android's dumpsys. The battery falls by one percent with every question, so that before and after differ.
PATH=/usr/bin:/bin
here=$(dirname "$0")/..
case $1 in
battery)
    level=$(cat "$here/battery")
    echo $((level - 1)) >"$here/battery.new" && mv "$here/battery.new" "$here/battery"
    cat <<END
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 4183000
  status: 2
  health: 2
  present: true
  level: $level
  scale: 100
  voltage: 4301
  temperature: 287
  technology: Li-ion
END
    ;;
thermalservice)
    printf '%s\n' 'IsStatusOverride: false' 'ThermalEventListeners:' '	callbacks: 2' '	killed: false' \
        '	broadcasts count: -1' 'Thermal Status: 0' 'Cached temperatures:' \
        '	Temperature{mValue=38.1, mType=0, mName=CPU0, mStatus=0}' \
        '	Temperature{mValue=31.4, mType=3, mName=skin, mStatus=0}' 'HAL Ready: true' 'HAL connection:' \
        '	ThermalHAL 2.0 connected: yes' 'Current temperatures from HAL:' \
        '	Temperature{mValue=38.3, mType=0, mName=CPU0, mStatus=0}' \
        '	Temperature{mValue=31.5, mType=3, mName=skin, mStatus=0}' \
        '	Temperature{mValue=35.0, mType=9, mName=nsp0, mStatus=0}' 'Current cooling devices from HAL:' \
        '	CoolingDevice{mValue=0, mType=2, mName=cpu-freq}'
    ;;
*) echo "Can't find service: $1" ;;
esac
"""

LOGCAT = r"""#!/bin/sh
# A stand-in for Android's logcat -d: a line of an hour ago, unless -T (a time) or -t (a number) leaves it out, and a
# line of now, in the format -v asks for (threadtime, epoch).
PATH=/usr/bin:/bin
format=threadtime old=yes
while [ $# -gt 0 ]; do
    case $1 in
    -v) shift; case $1 in *epoch*) format=epoch ;; esac ;;
    -vepoch | --format=epoch) format=epoch ;;
    -T | -t) shift; old=no ;;
    -T* | -t*) old=no ;;
    -b) shift ;;
    esac
    shift
done
line() {
    if [ $format = epoch ]; then
        echo "$(date -d "$1" +%s.%3N)  1234  1240 $2"
    else
        echo "$(date -d "$1" '+%m-%d %H:%M:%S.%3N')  1234  1240 $2"
    fi
}
echo '--------- beginning of main'
[ $old = no ] || line '-1 hour' 'E QnnDsp  : a line of an hour ago'
line now 'W QnnDsp  : Performance Estimates unsupported'
"""
