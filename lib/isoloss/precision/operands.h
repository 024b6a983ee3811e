// Makes the operands that several recipes share.
#pragma once

#include <string_view>

#include "isoloss/precision/recipe.h"

namespace isoloss::precision {

/// Returns MX blocks of the named element format. A block with a NaN or an
/// infinity becomes NaN.
formats::Quantization MxOperand(std::string_view element,
                                formats::ScaleRule rule);

/// Returns FP8 with an FP32 scale for each cell, which multiplies the sums.
/// Values that are not finite are treated as in TransformerEngine.
formats::Quantization Fp8Operand(std::string_view element,
                                 formats::ScaleRule rule, formats::Cell cell);

/// Returns NVFP4 in blocks of 16 along the contraction, or in squares of 16.
formats::Quantization Nvfp4Operand(bool square);

/// Returns the operand with stochastic rounding by `bits` random bits.
formats::Quantization Stochastic(formats::Quantization operand, int bits);

/// Returns the operand with the given transform.
formats::Quantization Transformed(formats::Quantization operand,
                                  formats::Transform transform);

/// Returns the same description for both operands of all three products.
LinearPrecision Uniform(const formats::Quantization& operand);

/// Activations (x), weights and output gradients (dy) have one description
/// each, in every product.
LinearPrecision ByTensor(const formats::Quantization& x,
                         const formats::Quantization& weight,
                         const formats::Quantization& dy);

/// Returns a recipe without names at the sites of torchtitan's MXFP8
/// (site_presets.h).
Recipe RecipeOf(const LinearPrecision& precision);

}  // namespace isoloss::precision
