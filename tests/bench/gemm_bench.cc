// GEMM speed as a fraction of the FP32 FMA peak of one core.
//
// The clock of a shared machine drifts, so every sample of a product is divided
// by a sample of a register-only FMA loop taken right before it; `of_peak` is
// the median of these ratios. `speedup` is one thread against two, paired in
// the same way.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/base/threads.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gemm_bench.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace isoloss::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Runs `passes` x 12 fused multiply-adds of a vector, in 12 chains that only
/// touch registers, and returns the floating-point operations done.
double RunFmaLoop(size_t passes) {
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.5f);
  // Starts differ, or the compiler would find the chains equal and keep one.
  const auto start = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  auto c0 = start(0), c1 = start(1), c2 = start(2), c3 = start(3);
  auto c4 = start(4), c5 = start(5), c6 = start(6), c7 = start(7);
  auto c8 = start(8), c9 = start(9), c10 = start(10), c11 = start(11);
  for (size_t pass = 0; pass < passes; ++pass) {
    c0 = hn::MulAdd(c0, factor, factor);
    c1 = hn::MulAdd(c1, factor, factor);
    c2 = hn::MulAdd(c2, factor, factor);
    c3 = hn::MulAdd(c3, factor, factor);
    c4 = hn::MulAdd(c4, factor, factor);
    c5 = hn::MulAdd(c5, factor, factor);
    c6 = hn::MulAdd(c6, factor, factor);
    c7 = hn::MulAdd(c7, factor, factor);
    c8 = hn::MulAdd(c8, factor, factor);
    c9 = hn::MulAdd(c9, factor, factor);
    c10 = hn::MulAdd(c10, factor, factor);
    c11 = hn::MulAdd(c11, factor, factor);
  }
  const auto s0 = hn::Add(hn::Add(c0, c1), hn::Add(c2, c3));
  const auto s1 = hn::Add(hn::Add(c4, c5), hn::Add(c6, c7));
  const auto s2 = hn::Add(hn::Add(c8, c9), hn::Add(c10, c11));
  benchmark::DoNotOptimize(hn::GetLane(hn::Add(s0, hn::Add(s1, s2))));
  return 2.0 * 12.0 * static_cast<double>(hn::Lanes(d) * passes);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::bench {
namespace {

HWY_EXPORT(RunFmaLoop);

constexpr double kSampleFlops = 4e7;

struct Size {
  size_t m;
  size_t n;
  size_t k;
};

double WallSeconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Time on the processor: other programs on the machine do not count.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

Matrix<float> Bf16Noise(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(1, stream);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] =
        formats::RoundToBf16(static_cast<float>(rng.Uniform(i) - 0.5));
  }
  return values;
}

enum class Pass {
  kForward,  ///< y = x w^T, both contracted along their columns
  kWgrad,    ///< dw = dy^T x, down the rows, in segments of 256 tokens
};

struct Product {
  Product(const Size& size, Pass pass, bool quantised)
      : c(size.m, size.n), spec{&formats::FormatByName("e4m3")} {
    const bool forward = pass == Pass::kForward;
    a = forward ? Bf16Noise(size.m, size.k, 1) : Bf16Noise(size.k, size.m, 1);
    b = forward ? Bf16Noise(size.n, size.k, 2) : Bf16Noise(size.k, size.n, 2);
    problem.a.values = a.view();
    problem.b.values = b.view();
    if (quantised) problem.a.mx = problem.b.mx = &spec;
    problem.c = c.view();
    problem.rounding = kernels::Rounding::kBf16;
    if (!forward) {
      problem.a.contraction = kernels::Contraction::kRows;
      problem.b.contraction = kernels::Contraction::kRows;
      for (size_t end = 256; end < size.k; end += 256) ends.push_back(end);
      ends.push_back(size.k);
      problem.segment_ends = ends;
    }
    flops = 2.0 * static_cast<double>(size.m * size.n) *
            static_cast<double>(size.k);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  Matrix<float> a, b, c;
  formats::MxSpec spec;
  std::vector<size_t> ends;
  kernels::GemmProblem problem;
  double flops = 0.0;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Flops a second of repeated calls; a sample has at least kSampleFlops.
template <typename Call>
double Rate(double flops, double (*seconds)(), const Call& call) {
  const int calls = 1 + static_cast<int>(kSampleFlops / flops);
  const double start = seconds();
  for (int i = 0; i < calls; ++i) call();
  return flops * calls / (seconds() - start);
}

double PeakRate() {
  const double start = ThreadSeconds();
  const double flops = HWY_DYNAMIC_DISPATCH(RunFmaLoop)(100'000);
  return flops / (ThreadSeconds() - start);
}

std::map<std::string, std::vector<double>>& FractionsByKind() {
  static std::map<std::string, std::vector<double>> fractions;
  return fractions;
}

/// One family of runs; its name begins the name of each of them.
struct Kind {
  const char* name;
  Pass pass;
  bool quantised;
};

void OneThread(benchmark::State& state, const Kind& kind, const Size& size) {
  const Product product(size, kind.pass, kind.quantised);
  kernels::Gemm(product.problem);

  std::vector<double> fractions;
  double flops_per_second = 0.0;
  for (auto _ : state) {
    const double peak = PeakRate();
    const double rate = Rate(product.flops, ThreadSeconds,
                             [&] { kernels::Gemm(product.problem); });
    state.SetIterationTime(product.flops / rate);
    fractions.push_back(rate / peak);
    flops_per_second = std::max(flops_per_second, rate);
  }

  const double fraction = Median(fractions);
  FractionsByKind()[kind.name].push_back(fraction);
  state.counters["of_peak"] = fraction;
  state.counters["GF/s"] = flops_per_second * 1e-9;
}

void TwoThreads(benchmark::State& state, const Size& size) {
  const Product product(size, Pass::kForward, false);
  ThreadTeam team(2);

  std::vector<double> speedups;
  for (auto _ : state) {
    const double one = Rate(product.flops, WallSeconds,
                            [&] { kernels::Gemm(product.problem); });
    const double two = Rate(product.flops, WallSeconds, [&] {
      kernels::GemmBatch({&product.problem, 1}, team);
    });
    state.SetIterationTime(product.flops / two);
    speedups.push_back(two / one);
  }

  state.counters["speedup"] = Median(speedups);
}

std::string Name(const std::string& kind, const Size& size) {
  return kind + "/" + std::to_string(size.m) + "x" + std::to_string(size.n) +
         "x" + std::to_string(size.k);
}

constexpr int kSamples = 15;

void RegisterOneThread(const Kind& kind, const Size& size) {
  benchmark::RegisterBenchmark(
      Name(kind.name, size).c_str(),
      [=](benchmark::State& state) { OneThread(state, kind, size); })
      ->UseManualTime()
      ->Iterations(kSamples);
}

/// The sizes that docs/performance.md states its fractions for.
void RegisterGrid() {
  for (const size_t m : {64, 256, 1024, 4096}) {
    for (const size_t n : {128, 256, 512, 1024}) {
      for (const size_t k : {128, 256, 512, 1024}) {
        const Size size{m, n, k};
        RegisterOneThread({"bf16", Pass::kForward, false}, size);
        RegisterOneThread({"mxfp8", Pass::kForward, true}, size);
        benchmark::RegisterBenchmark(
            Name("threads2", size).c_str(),
            [=](benchmark::State& state) { TwoThreads(state, size); })
            ->UseManualTime()
            ->Iterations(kSamples);
      }
    }
  }
}

/// What else a small model runs: attention tiles, experts with few tokens,
/// weight gradients.
void RegisterModelSizes() {
  for (const Size& size :
       {Size{64, 64, 48}, Size{64, 512, 48}, Size{64, 32, 512},
        Size{20, 128, 256}, Size{100, 64, 256}, Size{200, 256, 64}}) {
    RegisterOneThread({"small_bf16", Pass::kForward, false}, size);
    RegisterOneThread({"small_mxfp8", Pass::kForward, true}, size);
  }
  for (const Size& size :
       {Size{32, 256, 2048}, Size{256, 256, 2048}, Size{1024, 256, 2048}}) {
    RegisterOneThread({"wgrad_bf16", Pass::kWgrad, false}, size);
    RegisterOneThread({"wgrad_mxfp8", Pass::kWgrad, true}, size);
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  isoloss::kernels::ForceTargetFromEnvironment();
  isoloss::bench::RegisterGrid();
  isoloss::bench::RegisterModelSizes();
  benchmark::RunSpecifiedBenchmarks();
  std::printf("target %s\n", isoloss::kernels::ActiveTarget().c_str());
  for (const auto& [kind, fractions] : isoloss::bench::FractionsByKind()) {
    double log_sum = 0.0;
    for (const double fraction : fractions) log_sum += std::log(fraction);
    const double count = static_cast<double>(fractions.size());
    std::printf("%s: %zu sizes, of_peak geometric mean %.3f, worst %.3f\n",
                kind.c_str(), fractions.size(), std::exp(log_sum / count),
                *std::min_element(fractions.begin(), fractions.end()));
  }
  return 0;
}

#endif  // HWY_ONCE
