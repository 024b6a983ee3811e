#include "isoloss/model/operand_states.h"

#include <fmt/format.h>

#include "isoloss/base/rng.h"

namespace isoloss::model {

kernels::OperandState StateOf(const StepKey& key, std::string_view site,
                              precision::GemmRole role, OperandSide side,
                              size_t group, size_t first_tensor) {
  constexpr int kGroupBits = 24;
  const uint64_t index = key.step << kGroupBits | uint64_t{group};
  const auto bits = [&](const std::string& name) {
    return CounterRng(key.seed, StreamId(name)).Bits(index);
  };
  const std::string product =
      fmt::format("{}/{}", site, precision::GemmRoleName(role));
  kernels::OperandState state;
  state.common.seed = key.seed;
  state.common.stream =
      bits(fmt::format("quantize/{}/{}", product,
                       side == OperandSide::kLeft ? "left" : "right"));
  state.common.transform_key = bits("transform/" + product);
  state.first_tensor = first_tensor;
  return state;
}

}  // namespace isoloss::model
