// Compares whole tensors of one step of two runs, element by element.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/runlog/tensor_dump.h"

namespace isoloss::compare {

/// Returns the distance in representable FP32 values; +0 and -0 are 0 apart.
/// Empty if either is NaN.
std::optional<int64_t> UlpDistance(float a, float b);

struct ElementDifference {
  int64_t row = 0;
  int64_t col = 0;
  float a = 0;
  float b = 0;
};

/// A block has up to 32 elements, of which both runs quantised a copy.
struct BlockDifference {
  int64_t row = 0;  ///< of the first element
  int64_t col = 0;
  uint8_t scale_a = 0;  ///< E8M0
  uint8_t scale_b = 0;
  std::vector<uint8_t> codes_a;
  std::vector<uint8_t> codes_b;
  std::vector<float> decoded_a;  ///< values with which the GEMM computes
  std::vector<float> decoded_b;
  int64_t count = 0;  ///< blocks of the tensor that differ
  int64_t of = 0;     ///< blocks of the tensor
};

/// Operands that are no MX blocks have cells.
struct CellDifference {
  int64_t segment = 0;  ///< which tensor of the operand
  int64_t row = 0;  ///< of the first code that differs; else of the first code
  int64_t col = 0;  ///< along the contraction
  int64_t code_a = 0;
  int64_t code_b = 0;
  float scale_a = 0;  ///< times the tensor's
  float scale_b = 0;
  int64_t count = 0;  ///< cells of the operand that differ
  int64_t of = 0;
};

/// One tensor is in both dumps. Bits are compared: NaN equals a NaN of the same
/// bits, -0 differs from +0.
struct TensorDifference {
  std::string name;
  int64_t order = 0;
  /// If the shapes [rows, cols] differ, no field after `shape_b` is set.
  std::vector<int64_t> shape_a;
  std::vector<int64_t> shape_b;
  int64_t differing = 0;  ///< elements whose bits differ
  int64_t elements = 0;
  bool is_bf16 = false;    ///< BF16 represents all values of both
  double max_abs = 0;      ///< of a - b; NaN if a differing element is
  double relative_l2 = 0;  ///< ||a - b|| / ||a||
  std::vector<ElementDifference> first_elements;  ///< up to 8
  /// Format of the quantised copies, as dumped; "" if there is none.
  std::string format_rowwise_a, format_rowwise_b;
  std::string format_columnwise_a, format_columnwise_b;
  /// The first block that differs, if both copies have the same format.
  std::optional<BlockDifference> rowwise;
  std::optional<BlockDifference> columnwise;
  /// The first cell that differs, of copies that have cells.
  std::optional<CellDifference> cells_rowwise;
  std::optional<CellDifference> cells_columnwise;

  /// Returns whether shape, value or quantised copy differ. If only one run
  /// quantises the tensor, or the runs use different formats, that is a choice
  /// and no difference.
  bool Differs() const;
};

/// The two runs quantise this block of a GEMM's operand differently.
struct OperandBlock {
  struct Side {
    /// "" if the block is not quantised. If `codes` are empty, the operand has
    /// cells, and `values` are all that is given.
    std::string format;
    uint8_t scale = 0;  ///< E8M0
    std::vector<uint8_t> codes;
    std::vector<float> values;  ///< decoded, or as they are
  };
  std::string tensor;
  int64_t row = 0;  ///< of the first element
  int64_t col = 0;
  Side a;
  Side b;
};

struct DumpDifference {
  /// Every tensor that differs, in the order of computation of A.
  std::vector<TensorDifference> tensors;
  std::vector<std::string> agreeing_before_first;  ///< up to 3, nearest last
  int64_t equal = 0;                               ///< tensors that agree
  /// Operands are listed if the first of `tensors` is the output of a GEMM and
  /// only one run quantises its activation or weight, or the formats differ.
  /// Each has up to 2 blocks, from the beginning of the row from which the
  /// first differing element is computed. The weight of a group of GEMMs is not
  /// listed, since its dump does not tell which expert a row went to.
  std::vector<OperandBlock> operands;
  std::vector<std::string> only_a;
  std::vector<std::string> only_b;
};

/// Returns ||a - b|| / ||a|| in FP64; elements of equal bits count as 0. 0 if
/// all are equal, infinity if only ||a|| is 0, NaN if a differing element is
/// NaN. Requires equally many elements.
double RelativeL2(const std::vector<float>& a, const std::vector<float>& b);

/// Errors   FormatError if the dumps are of different steps or share no tensor.
DumpDifference CompareDumps(const runlog::TensorDump& a,
                            const runlog::TensorDump& b);

}  // namespace isoloss::compare
