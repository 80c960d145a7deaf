/* The style, the scripts and the libraries of the page, as they are in the files beside this one. */
    .section .rodata, "a", %progbits
.macro asset name, file
    .globl \name\()_begin, \name\()_end
    .hidden \name\()_begin, \name\()_end
\name\()_begin:
    .incbin "\file"
\name\()_end:
    .byte 0
.endm
    asset nd_asset_file_style, "style.css"
    asset nd_asset_file_script, "page.js"
    asset nd_asset_file_chart_style, "vendor/uPlot.css"
    asset nd_asset_file_chart, "vendor/uPlot.iife.js"
    asset nd_asset_file_graph, "vendor/dagre.js"
    .section .note.GNU-stack, "", %progbits
