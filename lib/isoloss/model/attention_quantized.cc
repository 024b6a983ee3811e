#include "isoloss/model/attention_quantized.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/graph.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using kernels::Operand;
using kernels::OperandState;
using kernels::Rounding;
using precision::GemmRole;

/// The operands of one product of one head of one document.
struct ProductOperands {
  const precision::GemmPrecision& precision;
  OperandState left_state;
  OperandState right_state;

  Operand Left(MatrixView<const float> values, Contraction contraction) const {
    return {.values = values,
            .contraction = contraction,
            .quantization = precision.left_operand(),
            .state = &left_state};
  }
  Operand Right(MatrixView<const float> values, Contraction contraction) const {
    return {.values = values,
            .contraction = contraction,
            .quantization = precision.right_operand(),
            .state = &right_state};
  }
};

/// The three products of S = Q K^T, or of O = P V.
class Site {
 public:
  Site(const precision::LinearPrecision& precision, std::string name,
       const StepKey& key)
      : precision_(precision), name_(std::move(name)), key_(key) {}

  ProductOperands For(GemmRole role, size_t tensor) const {
    const auto state = [&](OperandSide side) {
      return StateOf(key_, name_, role, side, /*group=*/0, tensor);
    };
    return {precision_.For(role), state(OperandSide::kLeft),
            state(OperandSide::kRight)};
  }
  const precision::LinearPrecision& precision() const { return precision_; }

 private:
  const precision::LinearPrecision& precision_;
  const std::string name_;
  const StepKey key_;
};

/// Buffers of the thread that runs a task, kept from task to task.
struct QuantizedScratch {
  Matrix<float> probabilities;  // [length, length]
  Matrix<float> dscores;        // [length, length]
  Matrix<float> sum;            // [length, width]
  ThreadTeam serial{1};
};

QuantizedScratch& ThisThreadsQuantizedScratch() {
  static thread_local QuantizedScratch scratch;
  return scratch;
}

void Probabilities(const AttentionInputs& in, const AttentionTask& task,
                   const ProductOperands& product, Matrix<float>& p) {
  p.ResizeUninitialized(task.length, task.length);
  kernels::Gemm({.a = product.Left(in.queries.Of(task), Contraction::kColumns),
                 .b = product.Right(in.keys.Of(task), Contraction::kColumns),
                 .c = p.view()});
  kernels::CausalSoftmaxForward(p.view(), 1, in.scale);
}

/// What P V reads of P.
Matrix<float> AsRead(const Matrix<float>& p, const ProductOperands& product) {
  Matrix<float> read;
  if (const auto* quantization = product.precision.left_operand()) {
    read = formats::Dequantize(
        formats::Quantize(p.cview(), *quantization, product.left_state.Of(0)),
        *quantization);
  } else {
    read.CopyFrom(p);
  }
  return read;
}

/// dp becomes ds, as in kernels::CausalSoftmaxBackward but for what the mean is
/// taken of.
void ScoreGradients(const Matrix<float>& p, const Matrix<float>& read,
                    float scale, Matrix<float>& dp) {
  for (size_t i = 0; i < p.rows(); ++i) {
    float* row = dp.Row(i);
    const float mean = kernels::RowDot({row, i + 1}, {read.Row(i), i + 1});
    for (size_t j = 0; j <= i; ++j) {
      row[j] = scale * (p(i, j) * (row[j] - mean));
    }
    std::fill(row + i + 1, row + p.cols(), 0.0f);
  }
}

/// to = round(left^T right) over the queries; of what is not quantised by
/// blocks of them, as AttentionBackward.
void MultiplyDown(const Operand& left, const Operand& right, Rounding rounding,
                  MatrixView<float> to, QuantizedScratch& scratch) {
  if (left.quantization != nullptr || right.quantization != nullptr) {
    kernels::Gemm({.a = left, .b = right, .c = to, .rounding = rounding});
    return;
  }
  scratch.sum.Resize(to.rows(), to.cols());
  for (size_t first = 0; first < left.values.rows(); first += kQueryBlock) {
    const size_t rows = std::min(kQueryBlock, left.values.rows() - first);
    const MatrixView<float> seen = scratch.sum.view().Rows(0, first + rows);
    kernels::Gemm({.a = {left.values.Rows(first, rows).Cols(0, first + rows),
                         Contraction::kRows},
                   .b = {right.values.Rows(first, rows), Contraction::kRows},
                   .c = seen,
                   .addend = seen});
  }
  kernels::Cast(scratch.sum.cview(), rounding, to, scratch.serial);
}

size_t CountQuantized(
    std::initializer_list<const precision::GemmPrecision*> products) {
  return static_cast<size_t>(std::ranges::count_if(
      products, [](const auto* product) { return product->quantized(); }));
}

}  // namespace

QuantizedAttention::QuantizedAttention(
    const precision::AttentionPrecision& precision, std::string site)
    : scores_(precision.Scores()),
      values_(precision.Values()),
      site_(std::move(site)) {}

size_t QuantizedAttention::quantized_forward() const {
  return CountQuantized({&scores_.fprop, &values_.fprop});
}

size_t QuantizedAttention::quantized_backward() const {
  return CountQuantized(
      {&scores_.dgrad, &scores_.wgrad, &values_.dgrad, &values_.wgrad});
}

void QuantizedAttention::Forward(const AttentionInputs& in, const StepKey& key,
                                 size_t first_token, Rounding rounding,
                                 const HeadColumns<float>& out,
                                 ThreadTeam& team) const {
  const Site scores(scores_, site_ + kAttentionScores, key);
  const Site values(values_, site_ + kAttentionValues, key);
  team.ParallelFor(in.document_ends.size() * in.heads, [&](size_t index) {
    const AttentionTask task = TaskAt(in, index);
    const size_t tensor = (first_token + task.begin) * in.heads + task.head;
    Matrix<float>& p = ThisThreadsQuantizedScratch().probabilities;
    Probabilities(in, task, scores.For(GemmRole::kFprop, tensor), p);
    const ProductOperands product = values.For(GemmRole::kFprop, tensor);
    kernels::Gemm({.a = product.Left(p.cview(), Contraction::kColumns),
                   .b = product.Right(in.values.Of(task), Contraction::kRows),
                   .c = out.Of(task),
                   .rounding = rounding});
  });
}

void QuantizedAttention::Backward(
    const AttentionInputs& in, const HeadColumns<const float>& dout,
    const StepKey& key, size_t first_token, Rounding rounding,
    const HeadColumns<float>& dqueries, const HeadColumns<float>& dkeys,
    const HeadColumns<float>& dvalues, ThreadTeam& team) const {
  const Site scores(scores_, site_ + kAttentionScores, key);
  const Site values(values_, site_ + kAttentionValues, key);
  team.ParallelFor(in.document_ends.size() * in.heads, [&](size_t index) {
    const AttentionTask task = TaskAt(in, index);
    const size_t tensor = (first_token + task.begin) * in.heads + task.head;
    QuantizedScratch& scratch = ThisThreadsQuantizedScratch();
    Matrix<float>& p = scratch.probabilities;
    Matrix<float>& ds = scratch.dscores;
    Probabilities(in, task, scores.For(GemmRole::kFprop, tensor), p);
    const ProductOperands dv = values.For(GemmRole::kWgrad, tensor);
    MultiplyDown(dv.Right(p.cview(), Contraction::kRows),
                 dv.Left(dout.Of(task), Contraction::kRows), rounding,
                 dvalues.Of(task), scratch);

    const ProductOperands dp = values.For(GemmRole::kDgrad, tensor);
    ds.ResizeUninitialized(task.length, task.length);
    kernels::Gemm({.a = dp.Left(dout.Of(task), Contraction::kColumns),
                   .b = dp.Right(in.values.Of(task), Contraction::kColumns),
                   .c = ds.view()});
    ScoreGradients(p, AsRead(p, values.For(GemmRole::kFprop, tensor)), in.scale,
                   ds);

    const ProductOperands dq = scores.For(GemmRole::kDgrad, tensor);
    kernels::Gemm({.a = dq.Left(ds.cview(), Contraction::kColumns),
                   .b = dq.Right(in.keys.Of(task), Contraction::kRows),
                   .c = dqueries.Of(task),
                   .rounding = rounding});
    const ProductOperands dk = scores.For(GemmRole::kWgrad, tensor);
    MultiplyDown(dk.Left(ds.cview(), Contraction::kRows),
                 dk.Right(in.queries.Of(task), Contraction::kRows), rounding,
                 dkeys.Of(task), scratch);
  });
}

}  // namespace isoloss::model
