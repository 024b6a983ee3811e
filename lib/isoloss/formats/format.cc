#include "isoloss/formats/format.h"

#include "isoloss/formats/registered.h"

namespace isoloss::formats {

#define ISOLOSS_FORMAT(name) extern const Format kFormat_##name;
#include "isoloss/formats/formats.def"
#undef ISOLOSS_FORMAT

namespace {

constexpr const Format* kFormats[] = {
#define ISOLOSS_FORMAT(name) &kFormat_##name,
#include "isoloss/formats/formats.def"
#undef ISOLOSS_FORMAT
};

}  // namespace

std::span<const Format* const> AllFormats() { return kFormats; }

const Format& FormatByName(std::string_view name) {
  return RegisteredByName(AllFormats(), name, "number format");
}

}  // namespace isoloss::formats
