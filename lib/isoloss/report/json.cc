#include "isoloss/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/document/json.h"
#include "isoloss/report/verdict_document.h"

namespace isoloss::report {
namespace {

using document::Json;

Json Sealed(Json json) {
  json["digest"] = VerdictDigest(json);
  return json;
}

/// File names are bytes of the system's choice, so bytes that are no UTF-8 are
/// replaced.
std::string TextOf(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string VerdictDigest(Json verdict) {
  verdict.erase("digest");
  return DigestToHex(
      DigestOf(verdict.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

Json VerdictJson(const gate::Judgement& judgement) {
  return Sealed(document::ToJson(DocumentOf(judgement)));
}

std::string RenderJson(const gate::Judgement& judgement) {
  return TextOf(VerdictJson(judgement));
}

std::string RenderJson(std::span<const gate::Judgement> judgements) {
  ISOLOSS_ASSERT(!judgements.empty());
  if (judgements.size() == 1) return RenderJson(judgements.front());
  Json verdicts = Json::array();
  for (const gate::Judgement& judgement : judgements) {
    verdicts.push_back(VerdictJson(judgement));
  }
  const gate::Outcome severest = gate::Severest(judgements);
  return TextOf(Sealed({{"schema_version", kVerdictSchemaVersion},
                        {"outcome", gate::OutcomeName(severest)},
                        {"exit_code", gate::ExitCode(severest)},
                        {"verdicts", std::move(verdicts)}}));
}

void WriteJson(std::span<const gate::Judgement> judgements,
               const std::filesystem::path& path) {
  const std::string text = RenderJson(judgements);
  WriteFileAtomically(path, text);
}

}  // namespace isoloss::report
