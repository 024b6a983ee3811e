#include "contest.h"

#include <algorithm>
#include <utility>

namespace isoloss::bench {
namespace {

/// Long enough for the clock's own cost not to count, short enough for the
/// processor's speed not to change between a sample and the peak beside it.
constexpr double kSampleSeconds = 5e-4;

double SecondsPerCall(Clock clock, const std::function<void()>& call,
                      size_t calls) {
  // Caches are warm and threads awake where calls follow each other closely.
  if (calls > 1) call();
  const double start = clock();
  for (size_t i = 0; i < calls; ++i) call();
  return (clock() - start) / static_cast<double>(calls);
}

}  // namespace

size_t Contest::Add(std::function<void()> call) {
  call();
  const double expected = SecondsPerCall(clock_, call, 1);
  const auto calls = static_cast<size_t>(
      std::max(1.0, kSampleSeconds / std::max(expected, 1e-9)));
  contenders_.push_back({std::move(call), calls});
  return contenders_.size() - 1;
}

void Contest::Round() {
  const bool forward = contenders_.front().seconds.size() % 2 == 0;
  double peak = with_peak_ ? FmaPeak() : 0.0;
  for (size_t i = 0; i < contenders_.size(); ++i) {
    Contender& contender =
        contenders_[forward ? i : contenders_.size() - 1 - i];
    contender.seconds.push_back(
        SecondsPerCall(clock_, contender.call, contender.calls));
    if (with_peak_) {
      const double next_peak = FmaPeak();
      contender.peaks.push_back((peak + next_peak) / 2);
      peak = next_peak;
    }
  }
}

void Contest::Run(benchmark::State& state) {
  for ([[maybe_unused]] auto _ : state) {
    Round();
    state.SetIterationTime(contenders_.front().seconds.back());
  }
}

double Contest::Seconds(size_t contender) const {
  return Median(contenders_[contender].seconds);
}

double Contest::TimeRatio(size_t contender, size_t other) const {
  std::vector<double> ratios = contenders_[contender].seconds;
  for (size_t i = 0; i < ratios.size(); ++i) {
    ratios[i] /= contenders_[other].seconds[i];
  }
  return Median(ratios);
}

double Contest::OfPeak(size_t contender, double flops) const {
  std::vector<double> fractions = contenders_[contender].seconds;
  for (size_t i = 0; i < fractions.size(); ++i) {
    fractions[i] = flops / fractions[i] / contenders_[contender].peaks[i];
  }
  return Median(fractions);
}

double Contest::Peak(size_t contender) const {
  return Median(contenders_[contender].peaks);
}

}  // namespace isoloss::bench
