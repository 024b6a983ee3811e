// Operands that several recipes share.
#pragma once

#include <string_view>

#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// MX blocks of the named element format; a block with a NaN or an infinity
/// becomes NaN.
formats::Quantization MxOperand(std::string_view element,
                                formats::ScaleRule rule);

/// FP8 with a scale of the sums in FP32, for each cell; what is not finite is
/// treated as TransformerEngine does.
formats::Quantization Fp8Operand(std::string_view element,
                                 formats::ScaleRule rule, formats::Cell cell);

/// NVFP4 in blocks of 16 along the contraction, or squares of 16.
formats::Quantization Nvfp4Operand(bool square);

/// The operand, rounded stochastically with so many bits.
formats::Quantization Stochastic(formats::Quantization operand, int bits);

/// The operand after the named transform.
formats::Quantization Transformed(formats::Quantization operand,
                                  formats::Transform transform);

/// The same for both operands of all three products.
LinearPrecision Uniform(const formats::Quantization& operand);

/// Activations (x), weights and output gradients (dy), each as it is wherever
/// it stands.
LinearPrecision ByTensor(const formats::Quantization& x,
                         const formats::Quantization& weight,
                         const formats::Quantization& dy);

/// A recipe without names at the sites of torchtitan's MXFP8 (site_presets.h).
Recipe RecipeOf(const LinearPrecision& precision);

}  // namespace isoloss::precision
