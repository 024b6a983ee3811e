#include "isoloss/formats/transform.h"

#include "isoloss/formats/registered.h"

namespace isoloss::formats {

#define ISOLOSS_TRANSFORM(name) extern const Transform kTransform_##name;
#include "isoloss/formats/transforms.def"
#undef ISOLOSS_TRANSFORM

namespace {

constexpr const Transform* kTransforms[] = {
#define ISOLOSS_TRANSFORM(name) &kTransform_##name,
#include "isoloss/formats/transforms.def"
#undef ISOLOSS_TRANSFORM
};

}  // namespace

std::span<const Transform* const> AllTransforms() { return kTransforms; }

const Transform& TransformByName(std::string_view name) {
  return RegisteredByName(AllTransforms(), name, "transform");
}

}  // namespace isoloss::formats
