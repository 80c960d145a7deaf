/* The style, the scripts and the libraries of the page, as they are in the files beside this one; and the
 * descriptions of documents in docs/reference/schemas. */
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
    asset nd_asset_file_comparison, "comparison.json"
    asset nd_asset_file_explanation, "explanation.json"
    asset nd_asset_file_placement, "placement.json"
    asset nd_asset_file_latency, "latency.json"
    asset nd_asset_file_golden_checks, "golden_checks.json"
    asset nd_asset_file_golden_difference, "golden_difference.json"
    asset nd_asset_file_golden_upgrades, "golden_upgrades.json"
    asset nd_asset_file_golden_history, "golden_history.json"
    asset nd_asset_file_qualification, "qualification.json"
    asset nd_asset_file_alignment, "alignment.json"
    asset nd_asset_file_promotion, "promotion.json"
    .section .note.GNU-stack, "", %progbits
