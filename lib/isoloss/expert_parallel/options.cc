#include "isoloss/expert_parallel/options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"
#include "isoloss/expert_parallel/payload.h"

namespace isoloss::expert_parallel {
namespace {

void RequirePayload(const char* where, std::string_view key,
                    const std::string& name) {
  const std::vector<std::string> names = PayloadNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  ThrowError(ErrorKind::kConfig, "{} {} is `{}`, but must be one of {}.{}",
             where, key, name, fmt::join(names, ", "), DidYouMean(name, names));
}

void RequirePadding(const char* where, size_t padding) {
  if (std::find(std::begin(kPaddings), std::end(kPaddings),
                static_cast<int64_t>(padding)) != std::end(kPaddings)) {
    return;
  }
  ThrowError(ErrorKind::kConfig,
             "{} expert_padding is {}, but must be one of {}. 1 adds no rows.",
             where, padding, fmt::join(kPaddings, ", "));
}

/// Says why `algorithm` cannot apply weights inside the source's sum over
/// slots; "" if it can.
std::string_view WhyNotAtSource(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kFlat:
      return "";
    case Algorithm::kRank:
      return "`rank` adds rows on the expert's rank, where they must have "
             "their weights already";
    case Algorithm::kNode:
      return "`node` adds rows on the expert's rank, where they must have "
             "their weights already";
    case Algorithm::kTitanBf16:
      return "`titan_bf16` rounds each weighted row to BF16 before it adds it";
  }
  return "";
}

}  // namespace

void Validate(const ExchangeOptions& options, const char* where) {
  RequirePayload(where, "payload", options.payload);
  RequirePayload(where, "gradient_payload", options.gradient_payload);
  RequirePadding(where, options.padding);
  const std::string_view why = WhyNotAtSource(options.algorithm);
  if (options.weight_site == WeightSite::kSource && !why.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{} weight_site is `source`, but {}. Use `expert_out` or "
               "`before_fc2`, or the algorithm `flat`.",
               where, why);
  }
}

}  // namespace isoloss::expert_parallel
