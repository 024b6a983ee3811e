#include "isoloss/campaign/mutant_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::campaign {

std::vector<mutants::Mutant> MutantsOf(const std::string& group) {
  std::vector<mutants::Mutant> chosen;
  std::vector<std::string> groups;
  for (const mutants::Mutant& mutant : mutants::AllMutants()) {
    if (groups.empty() || groups.back() != mutant.group) {
      groups.push_back(mutant.group);
    }
    if (group.empty() || mutant.group == group) chosen.push_back(mutant);
  }
  if (chosen.empty()) {
    ThrowError(ErrorKind::kConfig,
               "--group: `{}` is none of the groups {}. Use one of these.{}",
               group, fmt::join(groups, ", "), DidYouMean(group, groups));
  }
  return chosen;
}

std::string RenderMutants(const std::vector<mutants::Mutant>& chosen) {
  std::string text;
  size_t width = 0;
  for (const mutants::Mutant& mutant : chosen) {
    width = std::max(width, mutant.name.size());
  }
  std::string group;
  for (const mutants::Mutant& mutant : chosen) {
    if (mutant.group != group) {
      text += fmt::format("{}{}\n", group.empty() ? "" : "\n", mutant.group);
      group = mutant.group;
    }
    text += fmt::format("  {:<{}}  {:<20}  {}\n", mutant.name, width,
                        mutants::ClassName(mutant.kind), mutant.what);
    for (const std::string& more : {mutant.note, mutant.link}) {
      if (!more.empty())
        text += fmt::format("  {:<{}}  {}\n", "", width + 22, more);
    }
  }
  return text;
}

document::Json MutantJson(const mutants::Mutant& mutant) {
  document::Json json{{"name", mutant.name}, {"group", mutant.group}};
  json["class"] = mutants::ClassName(mutant.kind);
  if (mutant.catalogue > 0) {
    json["catalogue"] = mutant.catalogue;
  } else {
    json["catalogue"] = nullptr;
  }
  json["what"] = mutant.what;
  json["link"] = mutant.link;
  json["note"] = mutant.note;
  json["onset"] = mutant.onset;
  json["edits"] = mutant.edit_log ? "log" : "run";
  return json;
}

}  // namespace isoloss::campaign
