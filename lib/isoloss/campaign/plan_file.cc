#include "isoloss/campaign/plan_file.h"

#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "isoloss/base/text_file.h"
#include "isoloss/config/document.h"

namespace isoloss::campaign {

std::string PlanDifference(const std::filesystem::path& file,
                           const std::string& plan) {
  constexpr const char* kRemedy = "Remove it, or give another --out.";
  const config::Document kept(ReadTextFile(file, kRemedy), file.string(),
                              kRemedy);
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

}  // namespace isoloss::campaign
