#include "isoloss/step_checks/sampling.h"

#include "isoloss/base/error.h"
#include "isoloss/train/cost.h"

namespace isoloss::step_checks {

CounterRng Sampling::StreamOf(const std::string& tensor) const {
  const CounterRng rng(key_->seed, StreamId("oracle/" + tensor));
  // Each step has a stream of its own.
  return CounterRng(key_->seed, rng.Bits(key_->step));
}

oracle::Sample Sampling::Of(const std::string& tensor, size_t rows,
                            size_t columns,
                            std::span<const size_t> begins) const {
  oracle::Sample sample = Few(tensor, rows, columns, kDraws);
  if (!sample.all()) sample.AddEdges(StreamOf(tensor), begins);
  return sample;
}

oracle::Sample Sampling::Few(const std::string& tensor, size_t rows,
                             size_t columns, size_t draws) const {
  if (all()) return {rows, columns};
  return {rows, columns, draws, StreamOf(tensor)};
}

void AddRest(size_t size, const oracle::Sample& sample,
             oracle::Comparison& comparison) {
  const auto rest = static_cast<int64_t>(size) - comparison.elements();
  ISOLOSS_ASSERT(rest >= 0);
  comparison.AddUnseen(rest, static_cast<int64_t>(sample.draws()));
}

bool IsLarge(const train::Experiment& experiment) {
  return train::FlopsPerToken(experiment) * train::TokensPerStep(experiment) >
         kMostFullFlops;
}

}  // namespace isoloss::step_checks
