#include "isoloss/formats/rounding_mode.h"

#include "isoloss/formats/registered.h"

namespace isoloss::formats {

#define ISOLOSS_ROUNDING_MODE(name) \
  extern const RoundingMode kRoundingMode_##name;
#include "isoloss/formats/rounding_modes.def"
#undef ISOLOSS_ROUNDING_MODE

namespace {

constexpr const RoundingMode* kModes[] = {
#define ISOLOSS_ROUNDING_MODE(name) &kRoundingMode_##name,
#include "isoloss/formats/rounding_modes.def"
#undef ISOLOSS_ROUNDING_MODE
};

}  // namespace

std::span<const RoundingMode* const> AllRoundingModes() { return kModes; }

const RoundingMode& RoundingModeByName(std::string_view name) {
  return RegisteredByName(AllRoundingModes(), name, "rounding");
}

}  // namespace isoloss::formats
