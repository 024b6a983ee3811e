// What the MXFP8 recipes share.
#pragma once

#include <string_view>

#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// One operand in MX blocks of the named element format; a block with a NaN or
/// an infinity becomes NaN.
formats::Quantization MxOperand(std::string_view element,
                                formats::ScaleRule mode);

/// E4M3 for both operands of all three products, on the linears of attention,
/// dense, shared and routed feed-forwards. The router's gate and the output
/// head stay in BF16, even if `include` is widened. Has no name yet.
/// Source   torchtitan, deepseek_v3_debugmodel_mxfp8 (sites); torchao,
///          MXFP8TrainingOpConfig (formats).
Recipe Mxfp8(formats::ScaleRule mode);

}  // namespace isoloss::precision
