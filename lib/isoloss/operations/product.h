// The products of a linear layer, as the recipe has them or otherwise.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/operations/operation.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

/// Changes what quantisation made of a tensor; false: there is nothing to
/// change.
using ChangeTensor = std::function<bool(
    oracle::ScalarTensor& tensor, const formats::Quantization& quantization)>;

/// One operand of a product.
struct Side {
  /// Rows are operand rows; or steps of the contraction, if it runs `down`.
  MatrixView<const float> values = {};
  bool down = false;
  std::optional<formats::Quantization> quantization = {};
  /// The recipe's, if its patterns leave this module as it is.
  std::optional<formats::Quantization> left_out = {};
  /// What was done along the rows of `values` before.
  std::optional<formats::Quantization> before = {};
  ChangeTensor change = nullptr;
  /// The same tensor one step earlier; nothing if it is not known.
  std::optional<MatrixView<const float>> previous = {};
  /// That of the call before, if a step has several.
  std::optional<MatrixView<const float>> previous_call = {};
  /// What `values` refers to, if it is no tensor of the file.
  std::shared_ptr<const Matrix<float>> owned = {};

  void Own(Matrix<float> matrix);
};

/// One expert's, or all.
struct ProductGroup {
  Side left;
  Side right;
  size_t first_row = 0;  ///< of the output
};

struct Product {
  precision::GemmRole role = precision::GemmRole::kFprop;
  oracle::Grid grid = oracle::Grid::kBf16;
  MatrixView<const float> output = {};
  std::vector<ProductGroup> groups = {};
  kernels::Accumulation accumulation = {};
  const float* bias = nullptr;  ///< one for each column
  /// The bias is added to the rounded product.
  bool bias_after = false;
  /// The sum is rounded to FP16 on the way.
  bool through_fp16 = false;
  /// The output is cut off to BF16, not rounded.
  bool cuts_output = false;
  /// Sums keep so many bits after the leading one, cut off after each so many
  /// steps; 0: they are FP32.
  int sum_bits = 0;
  size_t sum_steps = 0;
  /// Of those bits: nobody knows when they are cut off, so that all that may
  /// be lost is let pass.
  bool loses_bits = false;
  /// Rows that the following factors are of; null: all.
  const std::vector<bool>* factor_rows = nullptr;
  double factor = 1.0;       ///< of the sums
  double bias_factor = 1.0;  ///< of the bias
  double late_factor = 1.0;  ///< of the rounded result
};

/// The tensor that the side's quantisation makes of it, in the orientation of
/// the operand; nothing if its change has nothing to change.
std::optional<oracle::ScalarTensor> Quantized(const Side& side);

/// Every element of the output against the products.
/// Nothing, if a change has nothing to change, or sums can't be cut so.
std::optional<oracle::Comparison> Compare(const Product& product);

/// Calls use(row, column, sum) for each element of the output, before its last
/// rounding. Only of sums that are not cut off, and of sides without changes.
void ForEachSum(const Product& product,
                const std::function<void(size_t row, size_t column,
                                         const oracle::Estimate& sum)>& use);

/// What multiplies the codes of an operand, as a file holds it.
struct Scales {
  std::vector<float> values;
  bool has_bytes = false;  ///< of E8M0; else they are FP32
};
/// Nothing if the operand has none.
std::optional<Scales> ScalesOf(const Operation& operation,
                               const std::string& operand);

/// Codes and scales of one operand against those of a quantisation.
struct CodeComparison {
  oracle::Comparison codes = oracle::Comparison(oracle::Grid::kFp32);
  /// Places are those of the scales' own matrix: row and block, or block and
  /// column of an operand that runs down.
  oracle::Comparison scales = oracle::Comparison(oracle::Grid::kFp32);
  /// How scales differ, in whole sentences; "" if they do not.
  std::string remark = {};

  oracle::Comparison Both() const;
};

/// What an explanation is to explain.
using CodePart = oracle::Comparison (*)(const CodeComparison& comparison);

/// `side` of each group. Scales that are not as many as the blocks are all
/// wrong. FP32 scales that are no powers of two may be rounded twice on their
/// way. Zeros of either sign are equal: products do not see it.
std::optional<CodeComparison> CompareCodes(
    const std::vector<const Side*>& sides, const Codes& codes,
    const Scales& scales);

/// Operations of the product: how long Compare takes.
double MultiplyAdds(const Product& product);

}  // namespace isoloss::operations
