// One change in one tensor of a run, as hooks: where, and what must be named.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/train/trainer.h"

namespace isoloss::compare {

/// Does something to one element; true once it did.
using Change = std::function<bool(MatrixView<float>)>;

/// The first element from the middle on that is not zero; null if all are.
float* ElementOf(MatrixView<float> values);

/// Flips bit `bit` of that element.
Change Flip(int bit);

/// The last bit of BF16: still there when the value is rounded to it.
inline constexpr int kBf16Bit = 16;
inline constexpr int kLastBit = 0;

/// Where something is planted.
struct Place {
  std::string label;
  int64_t step = 0;
  std::string name;  ///< of the tensor that must be named
  /// Sets hooks that plant it at `step`, and then `planted`.
  std::function<void(train::RunHooks& hooks, int64_t step, bool& planted)>
      plant;
};

/// For messages of GoogleTest.
inline void PrintTo(const Place& place, std::ostream* out) {
  *out << place.label;
}

/// `change` in a tensor as it is announced.
Place InTensor(int64_t step, const std::string& name, const Change& change);

/// Forward, routing, experts and combine, backward, optimizer; steps 1, 2, 5.
std::vector<Place> AllPlaces();

}  // namespace isoloss::compare
