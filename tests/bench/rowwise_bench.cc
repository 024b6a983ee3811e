// Speed of the row-wise operations on one thread: elements per second, and as
// `of_copy` relative to a plain copy of the same matrix.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "contest.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/kernels/rowwise.h"
#include "program.h"

namespace isoloss::bench {
namespace {

using kernels::Rounding;

/// 2,048 tokens of width 256: the activations of a small model, 2 MB each.
constexpr size_t kTokens = 2048;
constexpr size_t kWidth = 256;

Matrix<float> Input(uint64_t stream) {
  const CounterRng rng(4, stream);
  Matrix<float> values(kTokens, kWidth);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(4 * rng.Uniform(i) - 2);
  }
  return values;
}

/// Four rows for each token, spread over all of them.
Matrix<int32_t> SomeRows() {
  const CounterRng rng(4, 3);
  Matrix<int32_t> index(kTokens, 4);
  for (size_t i = 0; i < index.size(); ++i) {
    index.data()[i] = static_cast<int32_t>(rng.Below(i, kTokens));
  }
  return index;
}

struct Buffers {
  Matrix<float> x = Input(0);
  Matrix<float> y = Input(1);
  Matrix<float> z = Input(2);
  Matrix<float> out{kTokens, kWidth};
  Matrix<float> out2{kTokens, kWidth};
  std::vector<float> weight = std::vector<float>(kWidth, 1.0f);
  std::vector<float> dweight = std::vector<float>(kWidth);
  std::vector<float> per_token = std::vector<float>(kTokens, 1.0f);
  std::vector<int32_t> labels = std::vector<int32_t>(kTokens, 5);
  Matrix<int32_t> index = SomeRows();
  Matrix<float> weights{kTokens, 4};
  Executor executor{1};
};

void Measure(benchmark::State& state,
             const std::function<void(Buffers&)>& operation) {
  Buffers buffers;
  Contest contest = Contest::OneThread();
  const size_t working = contest.Add([&] {
    operation(buffers);
    benchmark::ClobberMemory();
  });
  const size_t copying = contest.Add([&] {
    std::memcpy(buffers.out.data(), buffers.x.data(),
                buffers.x.size() * sizeof(float));
    benchmark::ClobberMemory();
  });
  contest.Run(state);
  state.counters["giga_elements_per_s"] =
      1e-9 * static_cast<double>(buffers.x.size()) / contest.Seconds(working);
  state.counters["of_copy"] = contest.TimeRatio(copying, working);
}

constexpr Rounding kRounding = Rounding::kBf16;

void RegisterAll(int rounds) {
  const auto add = [rounds](const std::string& name, auto operation) {
    benchmark::RegisterBenchmark(("rowwise/" + name).c_str(), Measure,
                                 operation)
        ->UseManualTime()
        ->Iterations(rounds);
  };
  add("Cast", [](Buffers& b) {
    kernels::Cast(b.x.view(), kRounding, b.out.view(), b.executor);
  });
  add("Add", [](Buffers& b) {
    kernels::Add(b.x.view(), b.y.view(), kRounding, b.out.view(), b.executor);
  });
  add("RmsNormForward", [](Buffers& b) {
    kernels::RmsNormForward(b.x.view(), b.weight, 1e-5f, kRounding,
                            b.out.view(), b.per_token, b.executor);
  });
  add("RmsNormBackward", [](Buffers& b) {
    kernels::RmsNormBackward(
        {b.x.view(), b.weight, b.per_token, b.y.view(), kRounding,
         /*add=*/false, b.out.view(), b.dweight},
        b.executor);
  });
  add("SwigluForward", [](Buffers& b) {
    kernels::SwigluForward(b.x.view(), b.y.view(), kRounding, b.out.view(),
                           b.executor);
  });
  add("SwigluBackward", [](Buffers& b) {
    kernels::SwigluBackward(b.x.view(), b.y.view(), b.z.view(), kRounding,
                            b.out.view(), b.out2.view(), b.executor);
  });
  add("RowSoftmax", [](Buffers& b) {
    kernels::RowSoftmax(b.x.view(), b.out.view(), b.executor);
  });
  add("CausalSoftmaxForward", [](Buffers& b) {
    // Square blocks, in place on the copy; half of each is masked.
    std::vector<size_t> ends;
    for (size_t row = 0; row < kTokens; row += kWidth) {
      ends.push_back(row + kWidth);
    }
    kernels::ScorePlan plan(kHostMemory);
    plan.List({ends, 1, true, 1});
    for (size_t i = 0; i < plan.size(); ++i) {
      kernels::CausalSoftmaxForward(plan.Wave(i),
                                    {b.out.Row(i * kWidth), kWidth * kWidth},
                                    0.1f, b.executor);
    }
  });
  add("CrossEntropy", [](Buffers& b) {
    kernels::CrossEntropy(b.x.view(), b.labels, 1e-3f, kRounding, b.per_token,
                          b.out.view(), b.executor);
  });
  add("GatherCombine", [](Buffers& b) {
    kernels::GatherCombine(b.x.view(), b.index.view(), b.weights.view(),
                           b.y.view(), kRounding, b.out.view(), b.executor);
  });
  add("AdamWUpdate", [](Buffers& b) {
    const kernels::AdamWScalars scalars = {0.9999f, 0.9f,  0.1f,  0.95f, 0.05f,
                                           1e-3f,   0.31f, 1e-8f, 1.0f};
    const size_t n = b.x.size();
    kernels::AdamWUpdate({b.out.data(), n}, {b.y.data(), n}, {b.out2.data(), n},
                         {b.x.data(), n}, scalars, b.executor);
  });
  add("SumOfSquares", [](Buffers& b) {
    benchmark::DoNotOptimize(
        kernels::SumOfSquares({b.x.data(), b.x.size()}, b.executor));
  });
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
