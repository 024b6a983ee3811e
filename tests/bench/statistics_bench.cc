// Cost of a tensor's statistics: nanoseconds an element, and as `of_product`
// the time of them beside that of one FP32 product with the tensor.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>

#include "contest.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/model/tap.h"
#include "isoloss/probes/tensor_accumulator.h"
#include "products.h"
#include "program.h"

namespace isoloss::bench {
namespace {

/// The activations of a small model, 2 MB, and the weights they meet.
constexpr size_t kTokens = 2048;
constexpr size_t kWidth = 256;

void Statistics(benchmark::State& state, bool quantized, int threads) {
  const Matrix<float> x = Bf16Noise(kTokens, kWidth, 0);
  const Matrix<float> w = Bf16Noise(kWidth, kWidth, 1);
  Matrix<float> y(kTokens, kWidth);
  const formats::Quantization spec = {&formats::FormatByName("e4m3")};
  model::Tensor tensor;
  tensor.values = x.view();
  if (quantized) tensor.rowwise = tensor.columnwise = &spec;
  const kernels::GemmProblem product = {
      .a = {x.view()}, .b = {w.view()}, .c = y.view()};
  Executor executor(threads);
  Contest contest = threads == 1 ? Contest::OneThread() : Contest::Wall();
  const size_t accumulating = contest.Add([&] {
    probes::TensorAccumulator accumulator;
    accumulator.Add(tensor, executor);
    benchmark::DoNotOptimize(accumulator.Finish());
  });
  const size_t multiplying = contest.Add([&] {
    kernels::GemmBatch({&product, 1}, executor);
  });
  contest.Run(state);
  state.counters["ns_per_element"] =
      1e9 * contest.Seconds(accumulating) / static_cast<double>(x.size());
  state.counters["of_product"] = contest.TimeRatio(accumulating, multiplying);
}

void RegisterAll(int rounds) {
  for (const bool quantized : {true, false}) {
    for (const int threads : {1, 2}) {
      benchmark::RegisterBenchmark(
          fmt::format("statistics/{}/threads_{}",
                      quantized ? "mxfp8_both_ways" : "unquantized", threads)
              .c_str(),
          [=](benchmark::State& state) {
            Statistics(state, quantized, threads);
          })
          ->UseManualTime()
          ->Iterations(rounds);
    }
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
