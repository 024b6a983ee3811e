#include "isoloss/expert_parallel/payload.h"

#include <fmt/ranges.h>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::expert_parallel {

extern const Payload kPayload_bf16;
extern const Payload kPayload_fp32;
#define ISOLOSS_PAYLOAD(name) extern const Payload kPayload_##name;
#include "isoloss/expert_parallel/payloads.def"
#undef ISOLOSS_PAYLOAD

namespace {

constexpr std::string_view kUnquantized = "unquantized";

constexpr const Payload* kQuantized[] = {
#define ISOLOSS_PAYLOAD(name) &kPayload_##name,
#include "isoloss/expert_parallel/payloads.def"
#undef ISOLOSS_PAYLOAD
};

}  // namespace

std::vector<std::string> PayloadNames() {
  std::vector<std::string> names = {std::string(kUnquantized)};
  for (const Payload* payload : kQuantized) names.emplace_back(payload->name);
  return names;
}

const Payload& PayloadByName(std::string_view name,
                             kernels::Rounding activations) {
  if (name == kUnquantized) {
    return activations == kernels::Rounding::kBf16 ? kPayload_bf16
                                                   : kPayload_fp32;
  }
  for (const Payload* payload : kQuantized) {
    if (payload->name == name) return *payload;
  }
  const std::vector<std::string> names = PayloadNames();
  ThrowError(ErrorKind::kConfig,
             "payload: `{}` was given, but it must be one of {}.{}", name,
             fmt::join(names, ", "), DidYouMean(name, names));
}

}  // namespace isoloss::expert_parallel
