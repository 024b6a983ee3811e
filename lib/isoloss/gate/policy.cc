#include "isoloss/gate/policy.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/text_file.h"
#include "isoloss/config/reader.h"
#include "isoloss/config/writer.h"
#include "isoloss/gate/level.h"

namespace isoloss::gate {

const std::vector<std::string>& ListableLevels() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Level* level : Ladder()) {
      if (level->decides != Decides::kNeither) names.emplace_back(level->name);
    }
    return names;
  }();
  return kNames;
}

std::string_view QuestionName(compare::Question question) {
  return question == compare::Question::kPrecision ? "precision" : "regression";
}

Policy ReadPolicy(const std::filesystem::path& path) {
  const std::string text =
      ReadTextFile(path, "Give the path of a gate policy.");
  return ParsePolicy(text, path.string());
}

Policy ParsePolicy(std::string_view text, std::string_view name) {
  return config::ReadAll<Policy>(config::Document(text, std::string(name)));
}

std::string FormatPolicy(const Policy& policy) {
  constexpr std::string_view kWhole = ".0\n";
  std::string text = config::TextOf(policy);
  for (size_t place = text.find(kWhole); place != std::string::npos;
       place = text.find(kWhole, place)) {
    text.erase(place, kWhole.size() - 1);
  }
  return text;
}

std::string PolicyDigest(const Policy& policy) {
  return DigestToHex(DigestOf(FormatPolicy(policy)));
}

}  // namespace isoloss::gate
