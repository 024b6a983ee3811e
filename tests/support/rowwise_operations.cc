#include "support/rowwise_operations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "support/one_block_wave.h"

namespace isoloss::kernels::rowwise_operations {
namespace {

float Draw(Values values, uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  const auto high = static_cast<uint32_t>(bits >> 32);
  if (values == Values::kAnyMagnitude) {
    const uint32_t finite = (low >> 23 & 0xFF) == 0xFF ? low & 0x807FFFFF : low;
    return high % 16 == 0 ? std::bit_cast<float>(low & 0x80000000)
                          : std::bit_cast<float>(finite);
  }
  if (values == Values::kNonFinite && high % 64 == 0) {
    constexpr uint32_t kSpecial[] = {0x7F800000, 0xFF800000, 0x7FC00001,
                                     0xFF800001, 0x80000000, 0x80000001};
    return std::bit_cast<float>(kSpecial[low % 6]);
  }
  return static_cast<float>(low) * 0x1p-29f - 4.0f;
}

/// A matrix inside a larger one whose other elements must stay as they are.
class GuardedMatrix {
 public:
  /// Its elements are to be written.
  GuardedMatrix(const Problem& problem, size_t rows, size_t cols)
      : rows_(rows), cols_(cols), memory_(*problem.memory) {
    Store(std::vector<float>(rows * Stride() + kGuard, kUntouched));
  }
  GuardedMatrix(const Problem& problem, uint64_t stream)
      : GuardedMatrix(problem, problem.rows, problem.cols, stream) {}
  GuardedMatrix(const Problem& problem, size_t rows, size_t cols,
                uint64_t stream)
      : rows_(rows), cols_(cols), memory_(*problem.memory) {
    std::vector<float> values(rows * Stride() + kGuard, kUntouched);
    const CounterRng rng(2, stream);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        values[i * Stride() + j] = Draw(problem.values, rng.Bits(i * cols + j));
      }
    }
    Store(values);
  }

  /// Makes all elements magnitudes.
  void TakeMagnitudes() {
    std::vector<float> values = storage();
    for (float& value : values) value = std::fabs(value);
    Store(values);
  }

  MatrixView<float> view() { return {storage_.data(), rows_, cols_, Stride()}; }
  MatrixView<const float> cview() { return view(); }
  std::span<float> row() { return {storage_.data(), cols_}; }
  /// Returns a copy of all elements.
  std::vector<float> storage() const {
    std::vector<float> values(storage_.size());
    memory_.CopyToHost(storage_.data(), values.size() * sizeof(float),
                       values.data());
    return values;
  }

 private:
  static constexpr size_t kGuard = 3;
  static constexpr float kUntouched = 77.0f;
  size_t Stride() const { return cols_ + kGuard; }

  void Store(const std::vector<float>& values) {
    storage_.ResizeUninitialized(1, values.size());
    memory_.CopyFromHost(values.data(), values.size() * sizeof(float),
                         storage_.data());
  }

  size_t rows_;
  size_t cols_;
  Memory& memory_;
  Matrix<float> storage_{memory_};
};

/// Calls definition(args...) or, with an executor, function(args..., executor).
template <typename Definition, typename Function, typename... Args>
void Apply(Definition definition, Function function, Executor* executor,
           Args&&... args) {
  if (executor == nullptr) {
    definition(std::forward<Args>(args)...);
  } else {
    function(std::forward<Args>(args)..., *executor);
  }
}

Outputs RunRowDot(const Problem& p, Executor* executor) {
  GuardedMatrix a(p, 1, p.cols, 0);
  GuardedMatrix b(p, 1, p.cols, 1);
  return {{executor == nullptr ? scalar::RowDot(a.row(), b.row())
                               : RowDot(a.row(), b.row())}};
}

Outputs RunRmsNormForward(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix weight(p, 1, p.cols, 1);
  GuardedMatrix y(p, p.rows, p.cols);
  GuardedMatrix rstd(p, 1, p.rows);
  Apply(scalar::RmsNormForward, RmsNormForward, executor, x.view(),
        weight.row(), 1e-5f, p.rounding, y.view(), rstd.row());
  return {y.storage(), rstd.storage()};
}

Outputs RunRmsNormBackward(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix weight(p, 1, p.cols, 1);
  GuardedMatrix rstd(p, 1, p.rows, 2);
  GuardedMatrix dy(p, 3);
  GuardedMatrix dx(p, p.rows, p.cols);
  GuardedMatrix dweight(p, 1, p.cols);
  RmsNormGradient gradient = {x.view(),  weight.row(), rstd.row(),
                              dy.view(), p.rounding,   /*add=*/false,
                              dx.view(), dweight.row()};
  Apply(scalar::RmsNormBackward, RmsNormBackward, executor, gradient);
  GuardedMatrix sum(p, 4);
  GuardedMatrix same_dweight(p, 1, p.cols);
  gradient.add = true;
  gradient.dx = sum.view();
  gradient.dweight = same_dweight.row();
  Apply(scalar::RmsNormBackward, RmsNormBackward, executor, gradient);
  return {dx.storage(), dweight.storage(), sum.storage(),
          same_dweight.storage()};
}

Outputs RunRope(const Problem& p, Executor* executor) {
  constexpr size_t kHeads = 3;
  constexpr size_t kOffset = 1;
  constexpr size_t kPositions = 7;
  const size_t pairs = p.cols;
  const size_t stride = 2 * pairs + 2;
  GuardedMatrix forward(p, p.rows, kHeads * stride, 0);
  GuardedMatrix inverse(p, p.rows, kHeads * stride, 0);
  GuardedMatrix cos(p, kPositions, pairs, 1);
  GuardedMatrix sin(p, kPositions, pairs, 2);
  std::vector<int32_t> positions(p.rows);
  for (size_t t = 0; t < p.rows; ++t) {
    positions[t] = static_cast<int32_t>(t * 3 % kPositions);
  }
  const auto heads = [&](GuardedMatrix& x) {
    return HeadColumns<float>{x.view(), kHeads, stride, kOffset, 2 * pairs};
  };
  RopeAngles angles = {positions, cos.view(), sin.view(), false};
  Apply(scalar::ApplyRope, ApplyRope, executor, heads(forward), angles,
        p.rounding);
  angles.inverse = true;
  Apply(scalar::ApplyRope, ApplyRope, executor, heads(inverse), angles,
        p.rounding);
  return {forward.storage(), inverse.storage()};
}

Outputs RunHeads(const Problem& p, Executor* executor) {
  constexpr size_t kHeads = 3;
  const size_t stride = p.cols + 2;
  GuardedMatrix x(p, p.rows, kHeads * stride, 0);
  GuardedMatrix copies(p, p.rows, kHeads * stride, 1);
  GuardedMatrix sums(p, p.rows, p.cols);
  const HeadColumns<const float> from = {x.view(), kHeads, stride, 1, p.cols};
  const HeadColumns<float> to = {copies.view(), kHeads, stride, 2, p.cols};
  Apply(scalar::CopyHeads, CopyHeads, executor, from, to);
  Apply(scalar::SumHeads, SumHeads, executor, from, p.rounding, sums.view());
  return {copies.storage(), sums.storage()};
}

Outputs RunFiniteAmax(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  const std::vector<size_t> begins = {0, p.rows / 3, p.rows / 3, p.rows};
  std::vector<float> amaxes(3);
  if (executor != nullptr) {
    FiniteAmaxes(x.view(), begins, p.rounding, amaxes, *executor);
    return {amaxes};
  }
  for (size_t g = 0; g < amaxes.size(); ++g) {
    const size_t count = begins[g + 1] - begins[g];
    amaxes[g] =
        scalar::FiniteAmax(x.cview().Rows(begins[g], count), p.rounding);
  }
  return {amaxes};
}

Outputs RunCausalSoftmax(const Problem& p, Executor* executor) {
  constexpr float kScale = 0.3f;
  const size_t rows = std::min(p.rows, p.cols);
  GuardedMatrix scores(p, 1, rows * p.cols, 0);
  GuardedMatrix probabilities(p, 1, rows * p.cols, 1);
  GuardedMatrix gradient(p, 1, rows * p.cols, 2);
  GuardedMatrix read(p, 1, rows * p.cols, 3);
  const test_support::OneBlockWave one(rows, p.cols, *p.memory);
  if (executor == nullptr) {
    const ScoreBlock& block = one.wave().blocks.front();
    const size_t length = block.first + 1;
    scalar::CausalSoftmaxForward(length, block.Of(scores.row()), kScale);
    scalar::CausalSoftmaxBackward(length, block.Of(probabilities.row()),
                                  block.Of(read.row()), kScale,
                                  block.Of(gradient.row()));
  } else {
    CausalSoftmaxForward(one.wave(), scores.row(), kScale, *executor);
    CausalSoftmaxBackward(one.wave(),
                          {probabilities.row(), read.row(), gradient.row()},
                          kScale, *executor);
  }
  return {scores.storage(), gradient.storage()};
}

Outputs RunRowSoftmax(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix out(p, p.rows, p.cols);
  Apply(scalar::RowSoftmax, RowSoftmax, executor, x.view(), out.view());
  return {out.storage()};
}

Outputs RunElementSigmoid(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix out(p, p.rows, p.cols);
  Apply(scalar::ElementSigmoid, ElementSigmoid, executor, x.view(), out.view());
  return {out.storage()};
}

Outputs RunSwiglu(const Problem& p, Executor* executor) {
  GuardedMatrix gate(p, 0);
  GuardedMatrix up(p, 1);
  GuardedMatrix dh(p, 2);
  GuardedMatrix h(p, p.rows, p.cols);
  GuardedMatrix dgate(p, p.rows, p.cols);
  Apply(scalar::SwigluForward, SwigluForward, executor, gate.view(), up.view(),
        p.rounding, h.view());
  // dup takes the place of dh.
  Apply(scalar::SwigluBackward, SwigluBackward, executor, gate.view(),
        up.view(), dh.view(), p.rounding, dgate.view(), dh.view());
  return {h.storage(), dgate.storage(), dh.storage()};
}

Outputs RunCrossEntropy(const Problem& p, Executor* executor) {
  GuardedMatrix logits(p, 0);
  std::vector<float> loss(p.rows);
  std::vector<float> loss_alone(p.rows);
  GuardedMatrix dlogits(p, p.rows, p.cols);
  std::vector<int32_t> labels(p.rows);
  for (size_t t = 0; t < p.rows; ++t) {
    labels[t] =
        t % 5 == 4 ? kIgnoredLabel : static_cast<int32_t>(t * 7 % p.cols);
  }
  const auto run = [&](std::vector<float>& per_token,
                       MatrixView<float> gradient) {
    Apply(scalar::CrossEntropy, CrossEntropy, executor, logits.view(), labels,
          1.0f / 96, p.rounding, per_token, gradient);
  };
  run(loss_alone, {});
  run(loss, dlogits.view());
  run(loss, logits.view());  // in place
  return {loss, loss_alone, dlogits.storage(), logits.storage()};
}

Outputs RunAddSubtractAndCast(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix y(p, 1);
  GuardedMatrix cast(p, p.rows, p.cols);
  Apply(scalar::Cast, Cast, executor, x.view(), p.rounding, cast.view());
  Apply(scalar::Add, Add, executor, x.view(), y.view(), p.rounding, y.view());
  Apply(scalar::Subtract, Subtract, executor, x.view(), y.view(), x.view());
  return {cast.storage(), y.storage(), x.storage()};
}

Outputs RunGatherCombine(const Problem& p, Executor* executor) {
  constexpr size_t kSlots = 3;
  constexpr size_t kRows = 11;
  GuardedMatrix rows(p, kRows, p.cols, 0);
  GuardedMatrix weights(p, p.rows, kSlots, 1);
  GuardedMatrix addend(p, 2);
  GuardedMatrix weighted(p, p.rows, p.cols);
  GuardedMatrix plain(p, p.rows, p.cols);
  Matrix<int32_t> index(p.rows, kSlots);
  for (size_t i = 0; i < index.size(); ++i) {
    index.data()[i] = static_cast<int32_t>(i * 5 % kRows);
  }
  Apply(scalar::GatherCombine, GatherCombine, executor, rows.view(),
        index.cview(), weights.view(), addend.view(), p.rounding,
        weighted.view());
  Apply(scalar::GatherCombine, GatherCombine, executor, rows.view(),
        index.cview(), MatrixView<const float>(), MatrixView<const float>(),
        p.rounding, plain.view());
  return {weighted.storage(), plain.storage()};
}

Outputs RunGatherCombineBackward(const Problem& p, Executor* executor) {
  constexpr size_t kSlots = 3;
  const size_t count = p.rows * kSlots;
  GuardedMatrix rows(p, count + 1, p.cols, 0);
  GuardedMatrix weights(p, p.rows, kSlots, 1);
  GuardedMatrix dout(p, 2);
  GuardedMatrix drows(p, count + 1, p.cols);
  GuardedMatrix dweights(p, p.rows, kSlots);
  Matrix<int32_t> index(p.rows, kSlots);
  for (size_t i = 0; i < count; ++i) {  // backwards, without row 0
    index.data()[i] = static_cast<int32_t>(count - i);
  }
  Apply(scalar::GatherCombineBackward, GatherCombineBackward, executor,
        rows.view(), index.cview(), weights.view(), dout.view(), p.rounding,
        drows.view(), dweights.view());
  GuardedMatrix same_dweights(p, p.rows, kSlots);
  Apply(scalar::GatherCombineBackward, GatherCombineBackward, executor,
        rows.view(), index.cview(), weights.view(), dout.view(), p.rounding,
        rows.view(),  // in place
        same_dweights.view());
  return {drows.storage(), dweights.storage(), rows.storage(),
          same_dweights.storage()};
}

/// rows * cols consecutive elements.
GuardedMatrix Flat(const Problem& p, uint64_t stream) {
  return {p, 1, p.rows * p.cols, stream};
}

constexpr AdamWScalars kScalars = {.decay = 0.9999f,
                                   .beta1 = 0.9f,
                                   .one_minus_beta1 = 0.1f,
                                   .beta2 = 0.95f,
                                   .one_minus_beta2 = 0.05f,
                                   .step_size = 3e-4f,
                                   .bias2_sqrt = 0.31f,
                                   .eps = 1e-8f,
                                   .grad_scale = 0.7f};

Outputs RunAdamW(const Problem& p, Executor* executor) {
  GuardedMatrix parameter = Flat(p, 0);
  GuardedMatrix first = Flat(p, 1);
  GuardedMatrix second = Flat(p, 2);
  GuardedMatrix gradient = Flat(p, 3);
  second.TakeMagnitudes();
  Apply(scalar::AdamWUpdate, AdamWUpdate, executor, parameter.row(),
        first.row(), second.row(), gradient.row(), kScalars);
  return {parameter.storage(), first.storage(), second.storage()};
}

/// Returns the bits of numbers, which are NaN if a number is.
std::vector<float> Halves(std::span<const double> values) {
  std::vector<float> halves;
  for (const double value : values) {
    const auto bits = std::bit_cast<std::array<float, 2>>(value);
    const auto nan = static_cast<float>(value);
    halves.push_back(std::isnan(value) ? nan : bits[0]);
    halves.push_back(std::isnan(value) ? nan : bits[1]);
  }
  return halves;
}

Outputs RunMeasuredAdamW(const Problem& p, Executor* executor) {
  Outputs outputs;
  for (const bool keeps_parameter : {false, true}) {
    GuardedMatrix parameter = Flat(p, 0);
    GuardedMatrix first = Flat(p, 1);
    GuardedMatrix second = Flat(p, 2);
    GuardedMatrix gradient = Flat(p, 3);
    second.TakeMagnitudes();
    std::vector<double> parameter_squares(SquaresLeaves(p.rows * p.cols));
    std::vector<double> update_squares(parameter_squares.size());
    const MeasuredAdamW update = {
        parameter.row(), first.row(),     second.row(),      gradient.row(),
        kScalars,        keeps_parameter, parameter_squares, update_squares};
    if (executor == nullptr) {
      scalar::MeasuredAdamWUpdate(update);
    } else {
      MeasuredAdamWUpdate({&update, 1}, *executor);
    }
    for (const GuardedMatrix* written :
         {&parameter, &first, &second, &gradient}) {
      outputs.push_back(written->storage());
    }
    outputs.push_back(Halves(parameter_squares));
    outputs.push_back(Halves(update_squares));
  }
  return outputs;
}

Outputs RunSumOfSquares(const Problem& p, Executor* executor) {
  GuardedMatrix values = Flat(p, 0);
  const double sum = executor == nullptr
                         ? scalar::SumOfSquares(values.row())
                         : SumOfSquares(values.row(), *executor);
  const auto bits = std::bit_cast<std::array<float, 2>>(sum);
  return {{bits[0], bits[1]}};
}

/// Equal bits, except that any NaN equals any other.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

void ExpectSame(const Outputs& given, const Outputs& defined) {
  ASSERT_EQ(given.size(), defined.size());
  for (size_t k = 0; k < given.size(); ++k) {
    ASSERT_EQ(given[k].size(), defined[k].size());
    for (size_t i = 0; i < given[k].size(); ++i) {
      ASSERT_TRUE(Same(given[k][i], defined[k][i]))
          << "output " << k << " element " << i << ": " << std::hexfloat
          << given[k][i] << " instead of " << defined[k][i];
    }
  }
}

}  // namespace

const std::vector<Operation>& All() {
  static const std::vector<Operation> operations = {
      {"AdamW", RunAdamW},
      {"AddSubtractAndCast", RunAddSubtractAndCast},
      {"CausalSoftmax", RunCausalSoftmax},
      {"CrossEntropy", RunCrossEntropy},
      {"ElementSigmoid", RunElementSigmoid},
      {"FiniteAmax", RunFiniteAmax},
      {"GatherCombine", RunGatherCombine},
      {"GatherCombineBackward", RunGatherCombineBackward},
      {"Heads", RunHeads},
      {"MeasuredAdamW", RunMeasuredAdamW},
      {"RmsNormBackward", RunRmsNormBackward},
      {"RmsNormForward", RunRmsNormForward},
      {"Rope", RunRope},
      {"RowDot", RunRowDot},
      {"RowSoftmax", RunRowSoftmax},
      {"SumOfSquares", RunSumOfSquares},
      {"Swiglu", RunSwiglu}};
  return operations;
}

std::vector<std::pair<size_t, size_t>> Extents() {
  std::vector<std::pair<size_t, size_t>> extents;
  for (const size_t cols :
       {1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 256}) {
    for (const size_t rows : {0, 1, 31, 32, 33, 100}) {
      extents.emplace_back(rows, cols);
    }
  }
  extents.emplace_back(100, 520);
  extents.emplace_back(333, 100);
  return extents;
}

void ExpectDefinedBits(const Operation& operation, size_t rows, size_t cols,
                       Executor& executor) {
  for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
    for (const Values values :
         {Values::kOrdinary, Values::kAnyMagnitude, Values::kNonFinite}) {
      Problem problem = {rows, cols, rounding, values};
      SCOPED_TRACE(testing::Message()
                   << rows << "x" << cols << " bf16 "
                   << (rounding == Rounding::kBf16) << " values "
                   << static_cast<int>(values));
      const Outputs defined = operation.run(problem, nullptr);
      problem.memory = &executor.memory();
      ExpectSame(operation.run(problem, &executor), defined);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace isoloss::kernels::rowwise_operations
