// One GEMM on one thread: the grid of docs/performance.md beside other
// libraries, and what else a small model multiplies.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "contest.h"
#include "isoloss/kernels/fused_gemm.h"
#include "isoloss/kernels/gemm.h"
#include "peers.h"
#include "products.h"
#include "program.h"

namespace isoloss::bench {
namespace {

/// One way to compute a product, and its place in the contest.
struct Entrant {
  std::string name;
  size_t number;
};

std::vector<Entrant> AddOurs(Contest& contest, LinearProduct& product) {
  std::vector<Entrant> ours;
  for (const Packing packing : {Packing::kInCall, Packing::kBeforehand}) {
    for (const Precision precision : {Precision::kBf16, Precision::kMxfp8}) {
      const std::string name = PrecisionName(precision);
      const bool prepacked = packing == Packing::kBeforehand;
      ours.push_back({prepacked ? name + "_prepacked" : name,
                      contest.Add([p = product.Problem(precision, packing)] {
                        kernels::Gemm(p);
                      })});
    }
  }
  return ours;
}

/// True if `other` is what we compute, up to roundings.
bool Agrees(const Matrix<float>& ours, const Matrix<float>& other) {
  double largest = 0.0;
  double worst = 0.0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto value = static_cast<double>(ours.data()[i]);
    const auto other_value = static_cast<double>(other.data()[i]);
    largest = std::max(largest, std::fabs(value));
    worst = std::max(worst, std::fabs(value - other_value));
  }
  // We round to BF16, by at most 2^-9 relative; the sums differ by far less.
  return worst <= std::ldexp(largest, -8);
}

/// Every way to compute one product, ours and the peers', in turn.
void OneProduct(benchmark::State& state, const GemmSize& size) {
  LinearProduct product(size);
  Contest contest = Contest::OneThread();
  const std::vector<Entrant> ours = AddOurs(contest, product);

  kernels::Gemm(product.Problem(Precision::kBf16, Packing::kInCall));
  Matrix<float> peers_y(size.m, size.n);
  std::vector<Entrant> peers;
  for (const Peer& peer : Peers()) {
    const PeerProduct view = {product.x().view(), product.w().view(),
                              peers_y.view()};
    peers.push_back({peer.name, contest.Add(peer.prepare(view))});
    if (!Agrees(product.y(), peers_y)) {
      state.SkipWithError((peer.name + " computes something else").c_str());
      return;
    }
  }
  contest.Run(state);

  const auto set_of_peak = [&](const Entrant& entrant) {
    state.counters["of_peak_" + entrant.name] =
        contest.OfPeak(entrant.number, size.flops());
  };
  for (const Entrant& entrant : ours) set_of_peak(entrant);
  for (const Entrant& peer : peers) {
    set_of_peak(peer);
    for (const Entrant& entrant : ours) {
      if (!entrant.name.starts_with("bf16")) continue;
      state.counters["vs_" + peer.name + entrant.name.substr(4)] =
          contest.TimeRatio(peer.number, entrant.number);
    }
  }
}

void OneWeightGradient(benchmark::State& state, const GemmSize& size) {
  WeightGradient product(size);
  Contest contest = Contest::OneThread();
  for (const Precision precision : {Precision::kBf16, Precision::kMxfp8}) {
    contest.Add([p = product.Problem(precision)] { kernels::Gemm(p); });
  }
  contest.Run(state);
  state.counters["of_peak_bf16"] = contest.OfPeak(0, size.flops());
  state.counters["of_peak_mxfp8"] = contest.OfPeak(1, size.flops());
}

/// Sums of tensor cores beside the FP32 chain. Counters are the speed of theirs
/// in units of the chain's.
void OneAccumulatedProduct(benchmark::State& state, const GemmSize& size) {
  LinearProduct product(size);
  Contest contest = Contest::OneThread();
  const auto add = [&](const kernels::GemmProblem& problem) {
    return contest.Add([problem] { kernels::Gemm(problem); });
  };
  const size_t chain = add(product.Problem(Precision::kBf16, Packing::kInCall));
  std::vector<Entrant> ours;
  for (const kernels::Accumulator* accumulator : kernels::AllAccumulators()) {
    if (!kernels::HasFusedPanels(accumulator)) continue;
    const bool of_values =
        accumulator->exponents == kernels::FactorExponents::kOfValues;
    kernels::GemmProblem problem = product.Problem(
        of_values ? Precision::kBf16 : Precision::kMxfp8, Packing::kInCall);
    problem.accumulation.accumulator = accumulator;
    ours.push_back({std::string(accumulator->name), add(problem)});
  }
  contest.Run(state);
  for (const Entrant& entrant : ours) {
    state.counters["of_chain_" + entrant.name] =
        contest.TimeRatio(chain, entrant.number);
  }
}

void Register(const std::string& group, const GemmSize& size, int rounds,
              void (*run)(benchmark::State&, const GemmSize&)) {
  benchmark::RegisterBenchmark(
      (group + "/" + size.name()).c_str(),
      [=](benchmark::State& state) { run(state, size); })
      ->UseManualTime()
      ->Iterations(rounds);
}

void RegisterAll(int rounds) {
  for (const Peer& peer : Peers()) {
    benchmark::AddCustomContext(peer.name, peer.version);
  }
  for (const GemmSize& size : GridSizes()) {
    Register("gemm", size, rounds, OneProduct);
  }
  // Attention tiles, experts with few tokens.
  for (const GemmSize& size :
       {GemmSize{64, 64, 48}, GemmSize{64, 512, 48}, GemmSize{64, 32, 512},
        GemmSize{20, 128, 256}, GemmSize{100, 64, 256},
        GemmSize{200, 256, 64}}) {
    Register("small", size, rounds, OneProduct);
  }
  for (const GemmSize& size :
       {GemmSize{256, 256, 256}, GemmSize{1024, 512, 512},
        GemmSize{256, 1024, 4096}}) {
    Register("accumulator", size, rounds, OneAccumulatedProduct);
  }
  for (const GemmSize& size :
       {GemmSize{32, 256, 2048}, GemmSize{256, 256, 2048},
        GemmSize{1024, 256, 2048}}) {
    Register("wgrad", size, rounds, OneWeightGradient);
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  isoloss::bench::StartWithFastestPeers(argv);
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
