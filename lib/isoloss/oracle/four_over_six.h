// Chooses the scales of NVFP4 blocks by their errors: Four Over Six.
#pragma once

#include "isoloss/formats/quantization.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::oracle {

/// Each block ends at the code 6 or at 4, whichever has the smaller error.
struct FourOverSix {
  bool by_squares = false;  ///< the error is of squares, not of magnitudes
  /// Scales of blocks that end at 6 are up to this number: 448 or 256.
  float largest_scale = 448.0f;

  bool operator==(const FourOverSix&) const = default;
};

/// Computes scales and codes of a tensor anew from its elements. Its element
/// must be E2M1 under two levels of scales.
///
/// A block that ends at 4 has the scale of one that ends at 6, times 1.5. Both
/// are E4M3 numbers of 448 at most. Errors are added in FP32, along each row,
/// then rows in halves. The scale for 6 is taken if errors are equal.
/// Source   arXiv 2512.02010; TransformerEngine, NVFP4 4over6, whose order of
///          FP32 operations this is.
void ChooseFourOrSix(const FourOverSix& rule,
                     const formats::Quantization& quantization,
                     ScalarTensor& tensor);

}  // namespace isoloss::oracle
