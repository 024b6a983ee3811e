// Computes products of a linear layer, as the recipe has them or with mistakes.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/operations/arithmetic.h"
#include "isoloss/operations/deviations.h"
#include "isoloss/operations/operation.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/four_over_six.h"
#include "isoloss/oracle/scalar_operand.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/precision/recipe.h"

namespace isoloss::operations {

/// Changes the quantised tensor. Returns false if there is nothing to change.
using ChangeTensor = std::function<bool(
    oracle::ScalarTensor& tensor, const formats::Quantization& quantization)>;

/// A side is one operand of a product.
struct Side {
  /// Rows are operand rows; or steps of the contraction, if it runs `down`.
  MatrixView<const float> values = {};
  bool down = false;
  std::optional<formats::Quantization> quantization = {};
  /// The recipe's quantisation, if its patterns leave this module as it is.
  std::optional<formats::Quantization> left_out = {};
  /// The values were first quantised so, along their rows.
  std::optional<formats::Quantization> before = {};
  /// The quantisation needs this besides: a history's maximum, or signs.
  formats::TensorState state = {};
  /// Elements were rounded at random with so many bits. Then `quantization`
  /// rounds toward zero, and the next code away from zero is right, too.
  int random_bits = 0;
  /// The largest magnitudes of the steps before, the latest last; empty: they
  /// are not known, or nothing looks back to them.
  std::vector<float> amax_history = {};
  /// The groups of a tensor share the scale that this largest magnitude gives.
  std::optional<float> shared_amax = {};
  /// The largest magnitude of the tensor over all ranks, which the file does
  /// not say to count; nothing: it is this rank's, or not known.
  std::optional<float> amax_of_ranks = {};
  double margin = 0.0;  ///< scales are 2^margin times as large
  /// Blocks of NVFP4 choose between two scales, by this rule.
  std::optional<oracle::FourOverSix> four_over_six = {};
  /// Values are rounded to BF16 after a transform.
  bool rounds_rotation = false;
  ChangeTensor change = nullptr;
  /// These codes and scales stand in place of those that the quantisation makes
  /// of the values.
  std::shared_ptr<const oracle::ScalarTensor> fixed = {};
  bool is_recorded = false;  ///< `fixed` is what a file has
  /// The other operand of the product; null if it is not known.
  std::shared_ptr<const Side> partner = {};
  /// The same tensor one step earlier; nothing if it is not known.
  std::optional<MatrixView<const float>> previous = {};
  /// The tensor of the previous call, if a step has several.
  std::optional<MatrixView<const float>> previous_call = {};
  /// If `values` is no tensor of the file, it refers to this matrix.
  std::shared_ptr<const Matrix<float>> owned = {};

  /// Returns the operand's rows, and its steps along the contraction.
  size_t extent() const { return down ? values.cols() : values.rows(); }
  size_t depth() const { return down ? values.rows() : values.cols(); }
  void Own(Matrix<float> matrix);
  /// Lets delayed scaling follow this maximum; 0: there is none yet.
  void SetHistory(float amax);
  float LatestAmax() const;
  float LargestAmax() const;
  /// Returns whether products must read `fixed`, since they do not know how to
  /// quantise the values.
  bool needs_fixing() const {
    return change != nullptr ||
           (fixed == nullptr && quantization &&
            (shared_amax || four_over_six ||
             (rounds_rotation && quantization->transforms())));
  }
  /// Makes the change, and fixes codes and scales. Returns false if the change
  /// has nothing to change.
  bool Fix();
};

/// A group is one expert's part, or the whole product.
struct ProductGroup {
  Side left;
  Side right;
  size_t first_row = 0;  ///< of the output
};

/// A mistake multiplied parts of a product by these numbers.
struct Factors {
  double product = 1.0;  ///< the sums
  double bias = 1.0;
  double result = 1.0;  ///< after its rounding
};

struct Product {
  precision::GemmRole role = precision::GemmRole::kFprop;
  oracle::Grid grid = oracle::Grid::kBf16;
  MatrixView<const float> output = {};
  std::vector<ProductGroup> groups = {};
  Arithmetic arithmetic = {};
  /// As placements tell, so many ranks hold a part of each sum.
  size_t parts = 1;
  const float* bias = nullptr;  ///< one for each column
  /// The bias is added to the rounded product.
  bool bias_after = false;
  /// The sum is rounded to FP16 on the way.
  bool through_fp16 = false;
  /// The output is cut off to BF16, not rounded.
  bool cuts_output = false;
  /// The output is made of codes of this format times `code_scale`; null: it is
  /// not.
  const formats::Format* codes_of_output = nullptr;
  double code_scale = 1.0;
  /// Sums keep `sum_bits` bits after the leading one, and are cut off after
  /// each `sum_steps` steps. If `sum_bits` is 0, they are FP32.
  int sum_bits = 0;
  size_t sum_steps = 0;
  /// It is not known when the bits are cut off, so any loss of them is allowed.
  bool loses_bits = false;
  /// The factors that follow apply to these rows; null: all.
  const std::vector<bool>* factor_rows = nullptr;
  Factors factors = {};
  /// This is missing to quantise the left and the right operand, as the end of
  /// a sentence; "": nothing is.
  std::array<std::string, 2> missing = {};
};

/// Returns the tensor that the side's quantisation makes, in the orientation of
/// the operand. Returns nothing if the side's change has nothing to change.
std::optional<oracle::ScalarTensor> Quantized(const Side& side);

/// Returns the side as the oracle reads it, without its change.
oracle::ScalarOperand OperandOf(const Side& side);

/// Returns what becomes of a sum that is known to the bit: bias, factors and
/// the last rounding. Each step is rounded to FP32.
float ResultOf(const Product& product, float sum, size_t row, size_t column);

/// Compares every element of the output with the products. Elements whose bits
/// the arithmetic predicts are equal or other. Returns nothing if a
/// change has nothing to change, or sums can't be cut off in this way.
/// Elements with other bits than the arithmetic predicts go to `deviations`, if
/// it is not null.
std::optional<oracle::Comparison> Compare(const Product& product,
                                          Deviations* deviations = nullptr);

/// Calls use(row, column, sum) for each element of the output, before its last
/// rounding, or after it if the arithmetic has bits. Sums must not be cut off,
/// and sides must have no changes.
void ForEachSum(const Product& product,
                const std::function<void(size_t row, size_t column,
                                         const oracle::Estimate& sum)>& use);

/// The codes of an operand are multiplied by its scales, as a file has them.
struct Scales {
  std::vector<float> values;
  formats::ScaleFormat format = formats::ScaleFormat::kFp32;  ///< of the file
  /// Whole tensors have these, one for each group, if a file has them apart;
  /// else `values` are what codes are multiplied by.
  std::vector<float> of_tensors = {};

  bool has_bytes() const { return format != formats::ScaleFormat::kFp32; }
  /// Returns what a scale of that cell is in this file.
  float Stored(const oracle::ScalarTensor& tensor,
               const oracle::ScalarScale& scale) const {
    return format == formats::ScaleFormat::kE4m3 || !of_tensors.empty()
               ? scale.decode
               : scale.decode * tensor.tensor_scale;
  }
};
/// Returns nothing if the operand has no scales.
std::optional<Scales> ScalesOf(const Operation& operation,
                               const std::string& operand);

/// Codes and scales of one operand are compared with those of a quantisation.
struct CodeComparison {
  oracle::Comparison codes = oracle::Comparison(oracle::Grid::kFp32);
  /// Places are those of the scales' own matrix: row and block, or block and
  /// column of an operand that runs down.
  oracle::Comparison scales = oracle::Comparison(oracle::Grid::kFp32);
  /// Scales of the whole tensors, if the file has them; rows are groups.
  oracle::Comparison of_tensors = oracle::Comparison(oracle::Grid::kFp32);
  /// Whole sentences say how scales differ; "" if they do not.
  std::string remark = {};
  std::string remark_of_tensors = {};

  oracle::Comparison Both() const;
};

/// An explanation is sought for this part of the comparison.
using CodePart = oracle::Comparison (*)(const CodeComparison& comparison);

/// Compares the codes and scales of all groups; `sides` has one side for each.
/// If the number of scales is not that of the blocks, all are wrong. FP32
/// scales that are no powers of two may be rounded twice on their way. Zeros of
/// either sign are equal, since products do not show the sign.
std::optional<CodeComparison> CompareCodes(
    const std::vector<const Side*>& sides, const Codes& codes,
    const Scales& scales);

/// Returns the operations of the product, which tell how long Compare takes.
double MultiplyAdds(const Product& product);

}  // namespace isoloss::operations
