// Every row-wise operation equals its scalar definition bit for bit, on every
// target of this processor, with any number of threads, on awkward extents and
// with every kind of value.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "isoloss/kernels/targets.h"

namespace isoloss::kernels::rowwise_target_test {
namespace {

/// What the inputs look like.
enum class Values {
  kOrdinary,      ///< uniform in [-4, 4)
  kAnyMagnitude,  ///< random signs, exponents and mantissas, subnormals, zeros
  kNonFinite,     ///< ordinary, and one in 64 is NaN, an infinity or -0
};

struct Problem {
  size_t rows;
  size_t cols;
  Rounding rounding;
  Values values;
};

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
  GuardedMatrix(size_t rows, size_t cols)
      : rows_(rows), cols_(cols), storage_(rows * Stride() + kGuard, 77.0f) {}
  GuardedMatrix(const Problem& problem, uint64_t stream)
      : GuardedMatrix(problem.rows, problem.cols, problem.values, stream) {}
  GuardedMatrix(size_t rows, size_t cols, Values values, uint64_t stream)
      : GuardedMatrix(rows, cols) {
    const CounterRng rng(2, stream);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) {
        view()(i, j) = Draw(values, rng.Bits(i * cols + j));
      }
    }
  }

  MatrixView<float> view() { return {storage_.data(), rows_, cols_, Stride()}; }
  MatrixView<const float> cview() { return view(); }
  std::span<float> row() { return {storage_.data(), cols_}; }
  const std::vector<float>& storage() const { return storage_; }

 private:
  static constexpr size_t kGuard = 3;
  size_t Stride() const { return cols_ + kGuard; }

  size_t rows_;
  size_t cols_;
  std::vector<float> storage_;
};

/// Everything an operation wrote.
using Outputs = std::vector<std::vector<float>>;

/// An operation on a problem; without an executor, by its scalar definition.
struct Operation {
  const char* name;
  std::function<Outputs(const Problem&, Executor*)> run;
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
  GuardedMatrix a(1, p.cols, p.values, 0);
  GuardedMatrix b(1, p.cols, p.values, 1);
  return {{executor == nullptr ? scalar::RowDot(a.row(), b.row())
                               : RowDot(a.row(), b.row())}};
}

Outputs RunRmsNormForward(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix weight(1, p.cols, p.values, 1);
  GuardedMatrix y(p.rows, p.cols);
  GuardedMatrix rstd(1, p.rows);
  Apply(scalar::RmsNormForward, RmsNormForward, executor, x.view(),
        weight.row(), 1e-5f, p.rounding, y.view(), rstd.row());
  return {y.storage(), rstd.storage()};
}

Outputs RunRmsNormBackward(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix weight(1, p.cols, p.values, 1);
  GuardedMatrix rstd(1, p.rows, p.values, 2);
  GuardedMatrix dy(p, 3);
  GuardedMatrix dx(p.rows, p.cols);
  GuardedMatrix dweight(1, p.cols);
  RmsNormGradient gradient = {x.view(),  weight.row(), rstd.row(),
                              dy.view(), p.rounding,   /*add=*/false,
                              dx.view(), dweight.row()};
  Apply(scalar::RmsNormBackward, RmsNormBackward, executor, gradient);
  GuardedMatrix sum(p, 4);
  GuardedMatrix same_dweight(1, p.cols);
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
  GuardedMatrix forward(p.rows, kHeads * stride, p.values, 0);
  GuardedMatrix inverse(p.rows, kHeads * stride, p.values, 0);
  GuardedMatrix cos(kPositions, pairs, p.values, 1);
  GuardedMatrix sin(kPositions, pairs, p.values, 2);
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
  GuardedMatrix x(p.rows, kHeads * stride, p.values, 0);
  GuardedMatrix copies(p.rows, kHeads * stride, p.values, 1);
  GuardedMatrix sums(p.rows, p.cols);
  const HeadColumns<const float> from = {x.view(), kHeads, stride, 1, p.cols};
  const HeadColumns<float> to = {copies.view(), kHeads, stride, 2, p.cols};
  Apply(scalar::CopyHeads, CopyHeads, executor, from, to);
  Apply(scalar::SumHeads, SumHeads, executor, from, p.rounding, sums.view());
  return {copies.storage(), sums.storage()};
}

Outputs RunFiniteAmax(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  return {{executor == nullptr ? scalar::FiniteAmax(x.view(), p.rounding)
                               : FiniteAmax(x.view(), p.rounding, *executor)}};
}

Outputs RunCausalSoftmax(const Problem& p, Executor* executor) {
  const size_t first_length = p.cols > p.rows ? p.cols - p.rows : 1;
  GuardedMatrix scores(p, 0);
  GuardedMatrix probabilities(p, 1);
  GuardedMatrix gradient(p, 2);
  GuardedMatrix read(p, 3);
  const CausalBlock forward = {first_length, scores.view(), {}, {}};
  const CausalBlock backward = {first_length, probabilities.view(), read.view(),
                                gradient.view()};
  if (executor == nullptr) {
    scalar::CausalSoftmaxForward(forward, 0.3f);
    scalar::CausalSoftmaxBackward(backward, 0.3f);
  } else {
    CausalSoftmaxForward({&forward, 1}, 0.3f, *executor);
    CausalSoftmaxBackward({&backward, 1}, 0.3f, *executor);
  }
  return {scores.storage(), gradient.storage()};
}

Outputs RunRowSoftmax(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix out(p.rows, p.cols);
  Apply(scalar::RowSoftmax, RowSoftmax, executor, x.view(), out.view());
  return {out.storage()};
}

Outputs RunElementSigmoid(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix out(p.rows, p.cols);
  Apply(scalar::ElementSigmoid, ElementSigmoid, executor, x.view(), out.view());
  return {out.storage()};
}

Outputs RunSwiglu(const Problem& p, Executor* executor) {
  GuardedMatrix gate(p, 0);
  GuardedMatrix up(p, 1);
  GuardedMatrix dh(p, 2);
  GuardedMatrix h(p.rows, p.cols);
  GuardedMatrix dgate(p.rows, p.cols);
  Apply(scalar::SwigluForward, SwigluForward, executor, gate.view(), up.view(),
        p.rounding, h.view());
  // dup takes the place of dh.
  Apply(scalar::SwigluBackward, SwigluBackward, executor, gate.view(),
        up.view(), dh.view(), p.rounding, dgate.view(), dh.view());
  return {h.storage(), dgate.storage(), dh.storage()};
}

Outputs RunCrossEntropy(const Problem& p, Executor* executor) {
  GuardedMatrix logits(p, 0);
  GuardedMatrix loss(1, p.rows);
  GuardedMatrix loss_alone(1, p.rows);
  GuardedMatrix dlogits(p.rows, p.cols);
  std::vector<int32_t> labels(p.rows);
  for (size_t t = 0; t < p.rows; ++t) {
    labels[t] =
        t % 5 == 4 ? kIgnoredLabel : static_cast<int32_t>(t * 7 % p.cols);
  }
  const auto run = [&](GuardedMatrix& per_token, MatrixView<float> gradient) {
    Apply(scalar::CrossEntropy, CrossEntropy, executor, logits.view(), labels,
          1.0f / 96, p.rounding, per_token.row(), gradient);
  };
  run(loss_alone, {});
  run(loss, dlogits.view());
  run(loss, logits.view());  // in place
  return {loss.storage(), loss_alone.storage(), dlogits.storage(),
          logits.storage()};
}

Outputs RunAddAndCast(const Problem& p, Executor* executor) {
  GuardedMatrix x(p, 0);
  GuardedMatrix y(p, 1);
  GuardedMatrix cast(p.rows, p.cols);
  Apply(scalar::Cast, Cast, executor, x.view(), p.rounding, cast.view());
  Apply(scalar::Add, Add, executor, x.view(), y.view(), p.rounding, y.view());
  return {cast.storage(), y.storage()};
}

Outputs RunGatherCombine(const Problem& p, Executor* executor) {
  constexpr size_t kSlots = 3;
  constexpr size_t kRows = 11;
  GuardedMatrix rows(kRows, p.cols, p.values, 0);
  GuardedMatrix weights(p.rows, kSlots, p.values, 1);
  GuardedMatrix addend(p, 2);
  GuardedMatrix weighted(p.rows, p.cols);
  GuardedMatrix plain(p.rows, p.cols);
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
  GuardedMatrix rows(count + 1, p.cols, p.values, 0);
  GuardedMatrix weights(p.rows, kSlots, p.values, 1);
  GuardedMatrix dout(p, 2);
  GuardedMatrix drows(count + 1, p.cols);
  GuardedMatrix dweights(p.rows, kSlots);
  Matrix<int32_t> index(p.rows, kSlots);
  for (size_t i = 0; i < count; ++i) {  // backwards, without row 0
    index.data()[i] = static_cast<int32_t>(count - i);
  }
  Apply(scalar::GatherCombineBackward, GatherCombineBackward, executor,
        rows.view(), index.cview(), weights.view(), dout.view(), p.rounding,
        drows.view(), dweights.view());
  GuardedMatrix same_dweights(p.rows, kSlots);
  Apply(scalar::GatherCombineBackward, GatherCombineBackward, executor,
        rows.view(), index.cview(), weights.view(), dout.view(), p.rounding,
        rows.view(),  // in place
        same_dweights.view());
  return {drows.storage(), dweights.storage(), rows.storage(),
          same_dweights.storage()};
}

/// rows * cols consecutive elements.
GuardedMatrix Flat(const Problem& p, uint64_t stream) {
  return {1, p.rows * p.cols, p.values, stream};
}

Outputs RunAdamW(const Problem& p, Executor* executor) {
  GuardedMatrix parameter = Flat(p, 0);
  GuardedMatrix first = Flat(p, 1);
  GuardedMatrix second = Flat(p, 2);
  GuardedMatrix gradient = Flat(p, 3);
  for (float& v : second.row()) v = std::fabs(v);
  const AdamWScalars scalars = {.decay = 0.9999f,
                                .beta1 = 0.9f,
                                .one_minus_beta1 = 0.1f,
                                .beta2 = 0.95f,
                                .one_minus_beta2 = 0.05f,
                                .step_size = 3e-4f,
                                .bias2_sqrt = 0.31f,
                                .eps = 1e-8f,
                                .grad_scale = 0.7f};
  Apply(scalar::AdamWUpdate, AdamWUpdate, executor, parameter.row(),
        first.row(), second.row(), gradient.row(), scalars);
  return {parameter.storage(), first.storage(), second.storage()};
}

Outputs RunSumOfSquares(const Problem& p, Executor* executor) {
  GuardedMatrix values = Flat(p, 0);
  const double sum = executor == nullptr
                         ? scalar::SumOfSquares(values.row())
                         : SumOfSquares(values.row(), *executor);
  const auto bits = std::bit_cast<std::array<float, 2>>(sum);
  return {{bits[0], bits[1]}};
}

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"AdamW", RunAdamW},
      {"AddAndCast", RunAddAndCast},
      {"CausalSoftmax", RunCausalSoftmax},
      {"CrossEntropy", RunCrossEntropy},
      {"ElementSigmoid", RunElementSigmoid},
      {"FiniteAmax", RunFiniteAmax},
      {"GatherCombine", RunGatherCombine},
      {"GatherCombineBackward", RunGatherCombineBackward},
      {"Heads", RunHeads},
      {"RmsNormBackward", RunRmsNormBackward},
      {"RmsNormForward", RunRmsNormForward},
      {"Rope", RunRope},
      {"RowDot", RunRowDot},
      {"RowSoftmax", RunRowSoftmax},
      {"SumOfSquares", RunSumOfSquares},
      {"Swiglu", RunSwiglu}};
  return operations;
}

/// Widths around the vector lengths with every number of rows around the leaf
/// length; the last two are cut into several tasks.
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

class RowwiseTargetTest
    : public testing::TestWithParam<std::tuple<Operation, std::string>> {
 protected:
  RowwiseTargetTest() { ForceTarget(std::get<1>(GetParam())); }
  ~RowwiseTargetTest() override { ForceTarget(""); }
};

TEST_P(RowwiseTargetTest, EqualsTheScalarDefinitionBitForBit) {
  const Operation& operation = std::get<0>(GetParam());
  Executor executors[] = {Executor(1), Executor(2), Executor(3)};
  for (const auto& [rows, cols] : Extents()) {
    for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
      for (const Values values :
           {Values::kOrdinary, Values::kAnyMagnitude, Values::kNonFinite}) {
        const Problem problem = {rows, cols, rounding, values};
        SCOPED_TRACE(testing::Message()
                     << rows << "x" << cols << " bf16 "
                     << (rounding == Rounding::kBf16) << " values "
                     << static_cast<int>(values));

        const Outputs defined = operation.run(problem, nullptr);

        for (Executor& executor : executors) {
          ExpectSame(operation.run(problem, &executor), defined);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

class RowDotTargetTest : public testing::TestWithParam<std::string> {
 protected:
  RowDotTargetTest() { ForceTarget(GetParam()); }
  ~RowDotTargetTest() override { ForceTarget(""); }
};

TEST_P(RowDotTargetTest, PaddingTurnsNegativeZeroLanesPositive) {
  // Every product underflows to -0. Whole groups leave -0 in all lanes; the
  // zeros that fill up a short group make +0 of it.
  for (size_t count = 1; count <= 64; ++count) {
    const std::vector<float> a(count, 0x1p-100f);
    const std::vector<float> b(count, -0x1p-100f);

    const float sum = RowDot(a, b);

    EXPECT_EQ(sum, 0.0f) << count;
    EXPECT_EQ(std::signbit(sum), count % 16 == 0) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowDotTargetTest,
                         testing::ValuesIn(SupportedTargets()),
                         [](const auto& target) { return target.param; });

INSTANTIATE_TEST_SUITE_P(
    Rowwise, RowwiseTargetTest,
    testing::Combine(testing::ValuesIn(Operations()),
                     testing::ValuesIn(SupportedTargets())),
    [](const auto& pair) {
      return std::get<0>(pair.param).name + ("_" + std::get<1>(pair.param));
    });

}  // namespace
}  // namespace isoloss::kernels::rowwise_target_test
