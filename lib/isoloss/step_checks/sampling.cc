#include "isoloss/step_checks/sampling.h"

#include "isoloss/train/cost.h"

namespace isoloss::step_checks {

oracle::Sample Sampling::Of(const std::string& tensor, size_t rows,
                            size_t columns, size_t draws) const {
  if (all()) return {rows, columns};
  const CounterRng rng(key_->seed, StreamId("oracle/" + tensor));
  // Each step has a stream of its own.
  return {rows, columns, draws, CounterRng(key_->seed, rng.Bits(key_->step))};
}

bool IsLarge(const train::Experiment& experiment) {
  const auto tokens = static_cast<double>(experiment.train.sequences_per_batch *
                                          experiment.data.sequence_length);
  return train::FlopsPerToken(experiment) * tokens > kMostFullFlops;
}

}  // namespace isoloss::step_checks
