// The parts of the check of attention that belong to one head of a document:
// its operands, its dot products and its sums.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/oracle/dot_panel.h"
#include "isoloss/oracle/estimate.h"
#include "isoloss/oracle/factor_sums.h"
#include "isoloss/oracle/scalar_quantize.h"
#include "isoloss/oracle/uncertain.h"
#include "isoloss/step_checks/attention_core_check.h"

namespace isoloss::step_checks {

/// A sum of scaled values has more roundings than a chain. They belong to the
/// product of the scales, the multiplication by it, and a value that is code
/// times scale.
constexpr size_t kOfScales = 6;

/// Returns `values` with zeros in the columns that are added, up to a multiple
/// of oracle::kFactorLanes.
Matrix<double> Widened(MatrixView<const float> values);

/// Does what CausalDots does, for values that are known exactly and for the
/// first dots.size() rows.
void QuantizedDots(const double* left, const Matrix<double>& rows, size_t width,
                   std::vector<oracle::Estimate>& dots);

/// The core gives these sums for one head of a document.
struct HeadSums {
  /// `of_queries` and `of_keys` are ascending tokens of the document.
  HeadSums(std::vector<size_t> of_queries, std::vector<size_t> of_keys,
           size_t width, size_t value_width);

  std::vector<size_t> queries;
  std::vector<size_t> keys;

  std::vector<oracle::FactorSums> out;  ///< of queries, as dq
  std::vector<oracle::FactorSums> dq;
  std::vector<oracle::FactorSums> dk;  ///< of keys, as dv
  std::vector<oracle::FactorSums> dv;
};

/// Computes dot products of queries with the keys that they see.
class CausalDots {
 public:
  /// `rough` ones have larger errors than they might (DotPanel::RoughDots).
  CausalDots(MatrixView<const float> left, MatrixView<const float> right,
             bool rough);
  CausalDots(const CausalDots&) = delete;
  CausalDots& operator=(const CausalDots&) = delete;

  /// Returns the dots of one row with rows [0, row]. Rows must ascend one by
  /// one.
  void At(size_t row, std::vector<oracle::Estimate>& dots);

 private:
  const oracle::DotSide left_;
  const oracle::DotSide right_;
  const bool rough_;
  std::vector<oracle::DotPanel> panels_;
  std::vector<oracle::DotEstimates> tiles_;
};

/// Quantises the operands of the products of one head of a document. A tensor
/// is the head. Blocks lie along the contraction, which is along a row or
/// `down` the tokens.
class HeadOperands {
 public:
  HeadOperands(const AttentionFormats& formats, std::string core,
               size_t number);

  /// Returns the operand as its product reads it, laid out as Widened does.
  /// `place` is for example "scores/fprop/left". An operand without a
  /// quantisation stays as it is.
  Matrix<double> Read(const std::optional<formats::Quantization>& quantization,
                      MatrixView<const float> values, bool down,
                      const char* place) const;
  Matrix<oracle::Uncertain> Read(
      const std::optional<formats::Quantization>& quantization,
      const Matrix<oracle::Uncertain>& values, bool down,
      const char* place) const;

 private:
  formats::TensorState StateAt(const char* place) const;

  const AttentionFormats& formats_;
  const std::string core_;
  const size_t number_;
};

}  // namespace isoloss::step_checks
