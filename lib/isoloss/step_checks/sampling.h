// Says how much of a step's tensors the oracle looks at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "isoloss/base/rng.h"
#include "isoloss/oracle/comparison.h"
#include "isoloss/oracle/sample.h"
#include "isoloss/train/experiment.h"

namespace isoloss::step_checks {

/// A full check of a step takes some 20 times as long as the step. So up to
/// this many floating-point operations of its products it takes 70 s on two
/// processor cores that train at 160 GFLOP/s, and a larger step is sampled.
inline constexpr double kMostFullFlops = 0x1p39;

/// If more than one in 1000 elements of a tensor are wrong, so many draws miss
/// all of them with a chance of at most 0.1 %: 0.999^6905 < 0.001. A sampled
/// step of 100 M parameters draws from a thousand tensors, at most some 10 µs
/// an element: 35 s on two cores besides what sums over whole tensors take.
inline constexpr size_t kDraws = 6905;

/// A head of attention whose operands are quantised is computed as a whole,
/// 0.8 s for a document of 1024 tokens. So few are drawn in each layer.
inline constexpr size_t kQuantizedHeadDraws = 8;

class Sampling {
 public:
  /// Looks at all elements.
  Sampling() = default;
  /// Draws elements. They depend on `seed`, `step` and the tensor's name only.
  Sampling(uint64_t seed, uint64_t step) : key_({seed, step}) {}

  bool all() const { return !key_; }

  /// Returns the sample of a tensor, or of a part of one that has this name and
  /// this extent: kDraws, and edges. `begins` are those of groups of rows.
  oracle::Sample Of(const std::string& tensor, size_t rows, size_t columns,
                    std::span<const size_t> begins = {}) const;
  /// Returns a sample of so few draws, without edges.
  oracle::Sample Few(const std::string& tensor, size_t rows, size_t columns,
                     size_t draws) const;

 private:
  CounterRng StreamOf(const std::string& tensor) const;

  struct Key {
    uint64_t seed;
    uint64_t step;
  };
  std::optional<Key> key_;
};

/// Adds to a comparison of a tensor of `size` elements those that it lacks,
/// because a sample chose rows or heads of which it compared all elements.
void AddRest(size_t size, const oracle::Sample& sample,
             oracle::Comparison& comparison);

/// Returns whether steps of an experiment are too large to look at all elements
/// (kMostFullFlops).
bool IsLarge(const train::Experiment& experiment);

}  // namespace isoloss::step_checks
