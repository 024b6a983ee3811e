// Defines one (token, slot) assignment as it travels with a dispatched row.
#pragma once

#include <cstdint>
#include <type_traits>

namespace isoloss::expert_parallel {

/// An assignment takes 16 bytes on the wire.
struct Assignment {
  uint32_t token;  ///< in the global batch
  uint16_t slot;
  uint16_t expert;  ///< in the model
  uint32_t row;     ///< of the message's rows
  float weight;
};
static_assert(sizeof(Assignment) == 16 &&
              std::is_trivially_copyable_v<Assignment>);

}  // namespace isoloss::expert_parallel
