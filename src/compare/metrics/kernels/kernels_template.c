/* The kernels of one instruction set. Meson compiles this file once for each, with ND_KERNELS_ISA and the flags
 * of that set; the template_*.h are its parts. Plain C in loops that compilers vectorise: the order of every
 * addition is written out, contraction of a multiply and an add is off, so what differs between instruction
 * sets is speed alone. */
#include "compare/metrics/kernels/template_distances.h"
#include "compare/metrics/kernels/template_pairs.h"
#include "compare/metrics/kernels/template_self.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)

extern const struct nd_kernels JOIN(nd_kernels_, ND_KERNELS_ISA);
const struct nd_kernels JOIN(nd_kernels_, ND_KERNELS_ISA) = {
    .name = TEXT(ND_KERNELS_ISA),
    .load = {[ND_ELEM_U8] = load_u8,
             [ND_ELEM_I8] = load_i8,
             [ND_ELEM_U16] = load_u16,
             [ND_ELEM_I16] = load_i16,
             [ND_ELEM_U32] = load_u32,
             [ND_ELEM_I32] = load_i32,
             [ND_ELEM_U64] = load_u64,
             [ND_ELEM_I64] = load_i64,
             [ND_ELEM_F8E4M3FN] = load_f8e4m3fn,
             [ND_ELEM_F8E5M2] = load_f8e5m2,
             [ND_ELEM_F16] = load_f16,
             [ND_ELEM_BF16] = load_bf16,
             [ND_ELEM_F32] = load_f32,
             [ND_ELEM_F64] = load_f64},
    .mask = {mask_uint8_t, mask_uint16_t, mask_uint32_t, mask_uint64_t},
    .bits = find_bits,
    .distance = {[ND_ELEM_U8] = distance_u8,
                 [ND_ELEM_I8] = distance_i8,
                 [ND_ELEM_U16] = distance_u16,
                 [ND_ELEM_I16] = distance_i16,
                 [ND_ELEM_U32] = distance_u32,
                 [ND_ELEM_I32] = distance_i32,
                 [ND_ELEM_U64] = distance_u64,
                 [ND_ELEM_I64] = distance_i64,
                 [ND_ELEM_F8E4M3FN] = distance_f8,
                 [ND_ELEM_F8E5M2] = distance_f8,
                 [ND_ELEM_F16] = distance_f16,
                 [ND_ELEM_BF16] = distance_f16,
                 [ND_ELEM_F32] = distance_f32,
                 [ND_ELEM_F64] = distance_f64},
    .self_sums = self_sums,
    .self_elems = {[ND_ELEM_U8] = self_u8,
                   [ND_ELEM_I8] = self_i8,
                   [ND_ELEM_U16] = self_u16,
                   [ND_ELEM_I16] = self_i16,
                   [ND_ELEM_F32] = self_f32},
    .errors = errors,
    .join = join,
    .steps = find_steps,
    .steps_from = {[ND_ELEM_U8] = steps_from_u8,
                   [ND_ELEM_I8] = steps_from_i8,
                   [ND_ELEM_U16] = steps_from_u16,
                   [ND_ELEM_I16] = steps_from_i16},
    .exceeds = exceeds,
};
