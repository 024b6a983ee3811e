#include "isoloss/gate/policy.h"

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
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

Policy WithMargin(Policy policy, double percent, const std::string& source) {
  constexpr double kMost = 100;  // as of the key
  if (!(percent > 0 && percent < kMost)) {
    ThrowError(ErrorKind::kConfig,
               "{}: the margin is {:g}, but it must be above 0 and below {:g} "
               "% of the baseline's loss. Give for example 0.5.",
               source, percent, kMost);
  }
  if (policy.InTokens()) {
    ThrowError(ErrorKind::kConfig,
               "{}: a margin of {:g} % of the loss is given, but the policy "
               "decides by tokens (margin_tokens_percent = {:g}). Leave out "
               "one of them.",
               source, percent, policy.margin_tokens_percent);
  }
  policy.margin_percent = percent;
  policy.margin_source = source;
  return policy;
}

Policy ParsePolicy(std::string_view text, std::string_view name) {
  Policy policy =
      config::ReadAll<Policy>(config::Document(text, std::string(name)));
  policy.margin_source = name;
  return policy;
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
