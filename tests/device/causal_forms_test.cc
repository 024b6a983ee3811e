// On the host and on a device the products of causal attention have the bits of
// their definition, which stands here, and nothing beside their results is
// written.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "executors.h"
#include "host_and_device.h"
#include "isoloss/base/error.h"
#include "isoloss/kernels/causal_products.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "isoloss/kernels/score_plan.h"

namespace isoloss::device::causal_forms_test {
namespace {

using kernels::HeadColumns;
using kernels::kQueryBlock;
using kernels::Rounding;
using kernels::ScoreBlock;
using kernels::ScorePlan;
using kernels::ScoreWave;
using kernels::Values;

/// A batch, and where the columns of its heads lie.
struct Shape {
  std::vector<size_t> lengths;  ///< of documents
  size_t heads;
  size_t width;
  size_t other_width;
  size_t padding = 0;  ///< columns before and between heads
  bool whole = false;
  size_t most_scores = 20'000;
};

/// Has documents of one token, with tails, and so long that waves divide them.
std::vector<Shape> Shapes() {
  const std::vector<size_t> many = {1, 64, 3, 200, 65, 1, 127};
  return {{{1}, 1, 1, 1},
          {{63}, 1, 4, 3},
          {{1, 1, 1}, 3, 2, 7},
          {many, 2, 32, 17, 1},
          {many, 1, 96, 64, 4},
          {many, 2, 40, 100, 0, false, 1'000'000},
          {{300, 260}, 1, 33, 16, 3, false, 1},
          {{128, 128}, 1, 12, 200, 4, false, 30'000},
          {many, 1, 64, 5, 4, true},
          {{300, 30}, 2, 7, 96, 1, true}};
}

std::string NameOf(const Shape& shape) {
  std::string name = "lengths";
  for (const size_t length : shape.lengths)
    name += " " + std::to_string(length);
  return name + ", widths " + std::to_string(shape.width) + " and " +
         std::to_string(shape.other_width);
}

/// Columns of heads in a matrix of a test.
struct Columns {
  MatrixView<float> matrix;
  size_t heads;
  size_t padding;
  size_t width;

  HeadColumns<const float> In(TestMatrices::Copy& copy) const {
    return {copy.View(matrix), heads, padding + width, padding, width};
  }
  HeadColumns<float> Out(TestMatrices::Copy& copy) const {
    return {copy.View(matrix), heads, padding + width, padding, width};
  }
};

/// Holds what products of a batch read and write.
class Batch {
 public:
  Batch(const Shape& shape, Values kind, float scale = 1.0f) : shape_(shape) {
    for (const size_t length : shape.lengths) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + length);
    }
    plan_ = Plan(kHostMemory);
    const auto make = [&](size_t rows, size_t cols) {
      const MatrixView<float> made = matrices_.Make(rows, cols, kind);
      for (size_t i = 0; i < rows; ++i) {
        for (size_t j = 0; j < cols; ++j) made(i, j) *= scale;
      }
      return made;
    };
    const auto columns = [&](size_t width) {
      const size_t cols = shape.heads * (shape.padding + width) + 4;
      return Columns{make(ends_.back(), cols), shape.heads, shape.padding,
                     width};
    };
    for (MatrixView<float>* scores : {&p_, &dp_, &read_}) {
      *scores = make(1, plan_->most_scores() + 4);
    }
    queries_ = columns(shape.width);
    keys_ = columns(shape.width);
    values_ = columns(shape.other_width);
    dout_ = columns(shape.other_width);
    out_ = columns(shape.other_width);
    dqueries_ = columns(shape.width);
    dkeys_ = columns(shape.width);
    dvalues_ = columns(shape.other_width);
  }

  /// Expects what `run` leaves behind on all executors to be what `define`
  /// does. Both get a wave and a copy.
  template <typename Run, typename Define>
  void Compare(const Run& run, const Define& define) const {
    TestMatrices::Copy expected(matrices_, kHostMemory);
    for (size_t i = 0; i < plan_->size(); ++i) define(plan_->Wave(i), expected);
    std::vector<NamedExecutor> executors = DeviceExecutors();
    executors.push_back({"host", std::make_shared<Executor>(2)});
    for (const NamedExecutor& named : executors) {
      Executor& executor = *named.executor;
      TestMatrices::Copy copy(matrices_, executor.memory());
      const std::unique_ptr<ScorePlan> plan = Plan(executor.memory());
      for (size_t i = 0; i < plan->size(); ++i) {
        run(plan->Wave(i), copy, executor);
      }
      EXPECT_TRUE(SameMatrices(copy.OnHost(), expected.OnHost()))
          << named.name << ": " << NameOf(shape_);
    }
  }

  const Shape& shape() const { return shape_; }
  std::span<float> P(TestMatrices::Copy& copy) const { return In(copy, p_); }
  std::span<float> Dp(TestMatrices::Copy& copy) const { return In(copy, dp_); }
  std::span<float> Read(TestMatrices::Copy& copy) const {
    return In(copy, read_);
  }

  Columns queries_, keys_, values_, dout_, out_, dqueries_, dkeys_, dvalues_;

 private:
  std::unique_ptr<ScorePlan> Plan(Memory& memory) const {
    auto plan = std::make_unique<ScorePlan>(memory);
    plan->List({ends_, shape_.heads, shape_.whole, shape_.most_scores});
    return plan;
  }
  static std::span<float> In(TestMatrices::Copy& copy,
                             const MatrixView<float>& scores) {
    return {copy.View(scores).data(), scores.cols()};
  }

  const Shape shape_;
  std::vector<size_t> ends_;
  TestMatrices matrices_;
  std::unique_ptr<ScorePlan> plan_;
  MatrixView<float> p_, dp_, read_;
};

/// Returns the chain of a(k) * b(k) over `steps`.
template <typename A, typename B>
float Chain(size_t steps, const A& a, const B& b) {
  float sum = 0.0f;
  for (size_t k = 0; k < steps; ++k) sum = std::fma(a(k), b(k), sum);
  return sum;
}

void DefineScores(const ScoreWave& wave, const HeadColumns<const float>& left,
                  const HeadColumns<const float>& right,
                  std::span<float> scores) {
  for (const ScoreBlock& b : wave.blocks) {
    for (size_t i = 0; i < b.rows; ++i) {
      for (size_t j = 0; j < b.keys(); ++j) {
        const float* const query = left.Row(b.begin + b.first + i, b.head);
        const float* const key = right.Row(b.begin + j, b.head);
        b.Of(scores)(i, j) = Chain(
            left.width, [query](size_t k) { return query[k]; },
            [key](size_t k) { return key[k]; });
      }
    }
  }
}

void DefineOutputs(const ScoreWave& wave, std::span<const float> scores,
                   const HeadColumns<const float>& right, Rounding rounding,
                   const HeadColumns<float>& out) {
  for (const ScoreBlock& b : wave.blocks) {
    for (size_t i = 0; i < b.rows; ++i) {
      for (size_t c = 0; c < out.width; ++c) {
        const float* const row = b.Of(scores).Row(i);
        const float sum = Chain(
            b.keys(), [row](size_t k) { return row[k]; },
            [&](size_t k) { return right.Row(b.begin + k, b.head)[c]; });
        out.Row(b.begin + b.first + i, b.head)[c] =
            kernels::Rounded(sum, rounding);
      }
    }
  }
}

void DefineSums(const ScoreWave& wave, std::span<const float> scores,
                const HeadColumns<const float>& right, Rounding rounding,
                const HeadColumns<float>& sums) {
  for (const ScoreBlock& b : wave.blocks) {
    for (size_t j = 0; j < b.keys(); ++j) {
      float* const to = sums.Row(b.begin + j, b.head);
      for (size_t c = 0; c < sums.width; ++c) {
        for (size_t from = b.first; from < b.keys(); from += kQueryBlock) {
          const size_t steps = std::min(kQueryBlock, b.keys() - from);
          if (j >= from + steps) continue;
          const float chain = Chain(
              steps,
              [&](size_t k) { return b.Of(scores)(from - b.first + k, j); },
              [&](size_t k) {
                return right.Row(b.begin + from + k, b.head)[c];
              });
          to[c] = (j >= from ? 0.0f : to[c]) + chain;
        }
        if (b.is_last()) to[c] = kernels::Rounded(to[c], rounding);
      }
    }
  }
}

constexpr Rounding kRoundings[] = {Rounding::kFp32, Rounding::kBf16};

void ExpectScores(const Batch& batch) {
  batch.Compare(
      [&](const ScoreWave& wave, TestMatrices::Copy& in, Executor& executor) {
        const kernels::ScoreProduct products[] = {
            {batch.queries_.In(in), batch.keys_.In(in), {}, batch.P(in)},
            {batch.dout_.In(in), batch.values_.In(in), {}, batch.Dp(in)}};
        kernels::CausalScores(wave, products, executor);
      },
      [&](const ScoreWave& wave, TestMatrices::Copy& in) {
        DefineScores(wave, batch.queries_.In(in), batch.keys_.In(in),
                     batch.P(in));
        DefineScores(wave, batch.dout_.In(in), batch.values_.In(in),
                     batch.Dp(in));
      });
}

void ExpectProducts(const Batch& batch, Rounding rounding) {
  const bool whole = batch.shape().whole;
  batch.Compare(
      [&](const ScoreWave& wave, TestMatrices::Copy& in, Executor& executor) {
        const kernels::QueryProduct of_queries[] = {
            {batch.P(in), batch.values_.In(in), batch.out_.Out(in)},
            {batch.Dp(in), batch.keys_.In(in), batch.dqueries_.Out(in)}};
        const kernels::KeySum of_keys[] = {
            {batch.P(in), batch.dout_.In(in), batch.dvalues_.Out(in)},
            {batch.Dp(in), batch.queries_.In(in), batch.dkeys_.Out(in)}};
        kernels::CausalProducts(
            wave, {{of_queries, whole ? 0u : 2u}, of_keys, rounding}, executor);
      },
      [&](const ScoreWave& wave, TestMatrices::Copy& in) {
        if (!whole) {
          DefineOutputs(wave, batch.P(in), batch.values_.In(in), rounding,
                        batch.out_.Out(in));
          DefineOutputs(wave, batch.Dp(in), batch.keys_.In(in), rounding,
                        batch.dqueries_.Out(in));
        }
        DefineSums(wave, batch.P(in), batch.dout_.In(in), rounding,
                   batch.dvalues_.Out(in));
        DefineSums(wave, batch.Dp(in), batch.queries_.In(in), rounding,
                   batch.dkeys_.Out(in));
      });
}

TEST(CausalForms, ScoresHaveTheBitsOfTheirDefinition) {
  for (const Shape& shape : Shapes()) {
    if (shape.whole) continue;
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      ExpectScores(Batch(shape, kind));
    }
  }
}

TEST(CausalForms, ProductsHaveTheBitsOfTheirDefinition) {
  for (const Shape& shape : Shapes()) {
    for (const Values kind : {Values::kFp32, Values::kWild}) {
      for (const Rounding rounding : kRoundings) {
        ExpectProducts(Batch(shape, kind), rounding);
      }
    }
  }
}

/// Products that are too small for FP32 are -0 or +0: so is a chain of them,
/// which a step too many would change, but no sum of chains is -0.
TEST(CausalForms, MissingStepsAndSumsOfMinusZero) {
  for (const Shape& shape : Shapes()) {
    const Batch batch(shape, Values::kFp32, 0x1p-76f);
    ExpectProducts(batch, Rounding::kFp32);
    if (!shape.whole) ExpectScores(batch);
  }
}

TEST(CausalForms, SoftmaxHasTheBitsOfTheScalarText) {
  constexpr float kScale = 0.3f;
  for (const Shape& shape : Shapes()) {
    const Batch batch(shape, Values::kFp32);
    batch.Compare(
        [&](const ScoreWave& wave, TestMatrices::Copy& in, Executor& executor) {
          kernels::CausalSoftmaxForward(wave, batch.P(in), kScale, executor);
          kernels::CausalSoftmaxBackward(
              wave, {batch.P(in), batch.Read(in), batch.Dp(in)}, kScale,
              executor);
        },
        [&](const ScoreWave& wave, TestMatrices::Copy& in) {
          for (const ScoreBlock& b : wave.blocks) {
            kernels::scalar::CausalSoftmaxForward(b.first + 1,
                                                  b.Of(batch.P(in)), kScale);
            kernels::scalar::CausalSoftmaxBackward(
                b.first + 1, b.Of(batch.P(in)), b.Of(batch.Read(in)), kScale,
                b.Of(batch.Dp(in)));
          }
        });
  }
}

TEST(CausalForms, ShapesAreChecked) {
  const Batch batch({{100}, 1, 8, 8, 0, true}, Values::kBf16);
  batch.Compare(
      [&](const ScoreWave& wave, TestMatrices::Copy& in, Executor& executor) {
        const kernels::ScoreProduct whole = {
            batch.queries_.In(in), batch.keys_.In(in), {}, batch.P(in)};
        EXPECT_THROW(kernels::CausalScores(wave, {&whole, 1}, executor), Error);
        kernels::KeySum sum = {batch.P(in), batch.dout_.In(in),
                               batch.dvalues_.Out(in)};
        sum.sums.width = 7;
        EXPECT_THROW(
            kernels::CausalProducts(wave, {.of_keys = {&sum, 1}}, executor),
            Error);
        EXPECT_THROW(kernels::CausalSoftmaxForward(
                         wave, batch.P(in).first(9'999), 1.0f, executor),
                     Error);
      },
      [](const ScoreWave&, TestMatrices::Copy&) {});
}

}  // namespace
}  // namespace isoloss::device::causal_forms_test
