/* The one table of what is known of settings. Bits: the documentation of the HTP backend or of the provider
 * says that arithmetic or its order changes, or a difference was measured. Performance: clocks, votes,
 * profiling, memory that is only placed elsewhere. What is in neither list is not known. */
#include <string.h>

#include "npudiff/compare/config.h"

static const char *const changes_bits[] = {
    /* the backend's graph options */
    "O",
    "vtcm_mb",
    "hvx_threads",
    "num_cores",
    "dlbc",
    "dlbc_weights",
    "weights_packing",
    "advanced_activation_fusion",
    "short_depth_conv_on_hmx_off",
    "fold_relu_activation_into_conv_off",
    "use_high_precision_fp16_sigmoid",
    "monolithic_lstm",
    "fp16_relaxed_precision",
    /* which chip it prepares for */
    "soc_model",
    "soc_id",
    "dsp_arch",
    "htp_arch",
    "arch",
    "chipset",
    "kind",
    "is_simulator",
    /* ONNX Runtime and its QNN provider */
    "option_vtcm_mb",
    "option_soc_model",
    "option_htp_arch",
    "option_htp_graph_finalization_optimization_mode",
    "option_enable_htp_fp16_precision",
    "option_offload_graph_io_quantization",
    "option_htp_bf16_enable",
    "option_enable_htp_fp16_clamp_overflow",
    "option_enable_htp_monolithic_lstm",
    "option_op_packages",
    "option_backend_path",
    "option_backend_type",
    "option_enable_block_quant_weight_optimization",
    "optimisation",
    "threads",
    "id",
    "provider",
    "provider_version",
    "fallback_allowed",
    "processor",
    "machine",
    /* an emulated device, an exact one with another rounding */
    "option_profile",
    "option_rounding",
};

static const char *const changes_speed[] = {
    "perf_profile",
    "rpc_control_latency",
    "rpc_polling_time",
    "adaptive_polling_time",
    "ddr_perf_mode",
    "hmx_timeout_us",
    "profiling_level",
    "profiling_file_path",
    "pd_session",
    "mem_type",
    "file_read_memory_budget_in_mb",
    "io_memory_estimation",
    "init_acceleration",
    "max_spill_fill_buffer_for_group",
    "share_resources",
    "reused_io_limit_mb",
    "extended_udma",
    "weight_sharing_enabled",
    "concurrent_deserialization_patch",
    "shared_library_path",
    "config_file_path",
    "option_htp_performance_mode",
    "option_rpc_control_latency",
    "option_profiling_level",
    "option_profiling_file_path",
    "option_qnn_context_priority",
    "option_enable_htp_shared_memory_allocator",
    "option_enable_htp_spill_fill_buffer",
    "option_extended_udma",
    "option_num_graph_prepare_threads",
    "option_dump_json_qnn_graph",
    "option_json_qnn_graph_dir",
    "confined",
    "option_enable_vtcm_backup_buffer_sharing",
};

/* Libraries that compute. */
static const char *const computing[] = {"libQnn", "libonnxruntime", "libHtp", "libqnn", "libm.so", "libSnpe"};

const char *nd_config_effect_name(enum nd_config_effect effect)
{
    static const char *const names[] = {[ND_CONFIG_UNKNOWN] = "not known",
                                        [ND_CONFIG_BITS] = "can change bits",
                                        [ND_CONFIG_PERFORMANCE] = "performance only"};
    return names[effect];
}

/* Whether the last part of the key, less an index, is among the names. */
static bool is_listed(const char *key, const char *const *names, size_t n)
{
    const char *dot = strrchr(key, '.'), *last = dot != NULL ? dot + 1 : key;
    size_t length = strcspn(last, "[");
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == length && strncmp(names[i], last, length) == 0)
            return true;
    return false;
}

enum nd_config_effect nd_config_effect_of(const char *key)
{
    static const char library[] = "library.";
    if (strncmp(key, library, strlen(library)) == 0) {
        for (size_t i = 0; i < sizeof computing / sizeof computing[0]; i++)
            if (strncmp(key + strlen(library), computing[i], strlen(computing[i])) == 0)
                return ND_CONFIG_BITS;
        return ND_CONFIG_UNKNOWN;
    }
    if (is_listed(key, changes_bits, sizeof changes_bits / sizeof changes_bits[0]))
        return ND_CONFIG_BITS;
    if (is_listed(key, changes_speed, sizeof changes_speed / sizeof changes_speed[0]))
        return ND_CONFIG_PERFORMANCE;
    return ND_CONFIG_UNKNOWN;
}
