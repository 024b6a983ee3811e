#include "isoloss/campaign/plan_file.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "isoloss/base/text_file.h"
#include "isoloss/config/document.h"

namespace isoloss::campaign {
namespace {

config::Document ReadPlan(const std::filesystem::path& file) {
  constexpr const char* kRemedy = "Remove it, or give another --out.";
  return {ReadTextFile(file, kRemedy), file.string(), kRemedy};
}

}  // namespace

std::string PlanDifference(const std::filesystem::path& file,
                           const std::string& plan) {
  const config::Document kept = ReadPlan(file);
  const config::Document asked(plan, kPlanFile);
  std::set<std::string> keys;
  for (const auto& [a, b] : {std::pair(&kept, &asked), {&asked, &kept}}) {
    for (const config::Entry& entry : a->root().entries) {
      const config::Entry* other = b->root().Find(entry.key);
      if (other == nullptr || !(other->node == entry.node)) {
        keys.insert(entry.key);
      }
    }
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

bool HasKeysOfPlan(const std::filesystem::path& file, const std::string& plan) {
  return std::ranges::equal(ReadPlan(file).root().entries,
                            config::Document(plan, kPlanFile).root().entries,
                            {}, &config::Entry::key, &config::Entry::key);
}

}  // namespace isoloss::campaign
