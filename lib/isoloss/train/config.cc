#include "isoloss/train/config.h"

#include "isoloss/train/experiment_sections.h"

namespace isoloss::train {

expert_parallel::ExchangeOptions ExchangeConfig::Resolved() const {
  const bool flat = options.algorithm == Algorithm::kFlat;
  expert_parallel::ExchangeOptions resolved = options;
  resolved.weight_site =
      weight_site.value_or(flat ? WeightSite::kSource : WeightSite::kExpertOut);
  return resolved;
}

std::string DescribeExchange(const expert_parallel::ExchangeOptions& options) {
  ExchangeConfig exchange{options, options.weight_site};
  std::string text = config::TextOf(exchange);
  text.pop_back();
  for (size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', end)) {
    text.replace(end, 1, ", ");
  }
  return text;
}

const char* RoutingModeName(RoutingMode mode) {
  for (const auto& named : kRoutingModes) {
    if (named.value == mode) return named.name.data();
  }
  return "";
}

}  // namespace isoloss::train
