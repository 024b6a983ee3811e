#include "isoloss/step_checks/operand_states.h"

#include "isoloss/base/rng.h"
#include "isoloss/oracle/scalar_quantize.h"

namespace isoloss::step_checks {
namespace {

std::string ProductOf(const OperandPlace& place) {
  const char* product = place.role == precision::GemmRole::kFprop   ? "/fprop"
                        : place.role == precision::GemmRole::kDgrad ? "/dgrad"
                                                                    : "/wgrad";
  return place.site + product;
}

bool SameState(const kernels::OperandState& state,
               const formats::TensorState& expected) {
  return state.first_tensor == 0 && state.common.seed == expected.seed &&
         state.common.stream == expected.stream &&
         state.common.transform_key == expected.transform_key &&
         state.common.history == expected.history;
}

}  // namespace

std::string OperandPlace::Name() const {
  return ProductOf(*this) + (side == Side::kLeft ? "/left" : "/right");
}

formats::TensorState ExpectedState(const StepInputs& inputs,
                                   const OperandPlace& place, size_t group) {
  constexpr uint64_t kGroups = 1 << 24;
  const auto number = [&](const std::string& stream) {
    return CounterRng(inputs.seed, StreamId(stream))
        .Bits(inputs.step * kGroups + group);
  };
  formats::TensorState state = {
      .seed = inputs.seed,
      .stream = number("quantize/" + place.Name()),
      .transform_key = number("transform/" + ProductOf(place))};
  const auto history = inputs.histories.find({place.Name(), group});
  if (history != inputs.histories.end()) state.history = history->second;
  return state;
}

bool AreExpected(std::span<const kernels::OperandState> states,
                 const formats::Quantization* quantization,
                 const StepInputs& inputs, const OperandPlace& place,
                 size_t groups) {
  if (quantization == nullptr || !oracle::NeedsState(*quantization)) {
    return states.empty();
  }
  if (states.size() != groups) return false;
  for (size_t group = 0; group < groups; ++group) {
    if (!SameState(states[group], ExpectedState(inputs, place, group))) {
      return false;
    }
  }
  return true;
}

}  // namespace isoloss::step_checks
