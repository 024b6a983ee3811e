#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/document/json.h"
#include "isoloss/report/sites.h"

namespace isoloss::report {
namespace {

using document::IntervalJson;
using document::Json;
using document::PutNumber;

using sites::SetFinding;
using sites::Statement;

constexpr int64_t kSitesSchemaVersion = 1;

Json SiteInterval(const stats::MeanInterval& interval) {
  return IntervalJson(interval.mean, interval.lower, interval.upper);
}

Json ProductJson(const Statement& statement,
                 const sites::ProductFinding& finding) {
  const sites::Product& product = statement.products[finding.product];
  Json json{{"site", product.kind},
            {"role", sites::kRoleNames.at(product.role)},
            {"unstable", finding.unstable},
            {"harm_nats", SiteInterval(finding.harm)},
            {"alone_nats", SiteInterval(finding.only)},
            {"left_out_nats", SiteInterval(finding.all_but)},
            {"p", finding.p},
            {"p_adjusted", finding.adjusted}};
  PutNumber(json, "gradient_error_first", product.first_error);
  PutNumber(json, "gradient_error_last", product.last_error);
  json["shares"] = Json::array();
  for (const sites::Share& share : product.shares) {
    json["shares"].push_back({{"model", share.model},
                              {"flops", share.flops},
                              {"bytes_saved", share.bytes_saved}});
  }
  json["saved_seconds_of_a_token"] = product.saved_seconds;
  return json;
}

Json SetJson(const Statement& statement, const SetFinding& finding) {
  Json json{{"name", finding.set.name},
            {"source", finding.set.source},
            {"products", Json::array()},
            {"speed_up", finding.speed_up},
            {"predicted_nats", SiteInterval(finding.predicted)},
            {"measured_nats", nullptr},
            {"measured_minus_predicted_nats", nullptr},
            {"inside", nullptr}};
  for (const size_t product : finding.set.products) {
    json["products"].push_back(statement.products[product].Name());
  }
  if (finding.measured) {
    json["measured_nats"] = SiteInterval(*finding.measured);
    json["measured_minus_predicted_nats"] = SiteInterval(*finding.difference);
    json["inside"] = finding.inside();
  }
  return json;
}

Json SpeedJson(const sites::SpeedModel& speed) {
  const sites::Assumptions& assumed = speed.assumptions();
  Json json{{"model", speed.work().name},
            {"hardware", speed.hardware().name},
            {"gemm_share_of_peak", assumed.gemm_share},
            {"cast_share_of_memory_rate", assumed.memory_share},
            {"gemm_seconds", speed.GemmSeconds()},
            {"exchange_seconds_standard",
             speed.ExchangeSeconds(sites::Dispatch::kStandard)},
            {"exchange_seconds_deepep",
             speed.ExchangeSeconds(sites::Dispatch::kDeepep)},
            {"rest_seconds", speed.RestSeconds()},
            {"tries", Json::array()}};
  for (const sites::SpeedTry& tried : speed.Tries()) {
    json["tries"].push_back(
        {{"run", tried.run.name},
         {"fitted", tried.fitted},
         {"published_tokens_per_second", tried.run.tokens_per_second},
         {"predicted_tokens_per_second", tried.predicted},
         {"predicted_if_experts_share_a_rank", tried.predicted_one_rank}});
  }
  return json;
}

}  // namespace

std::string RenderSitesJson(const Statement& statement) {
  const sites::Findings& findings = statement.findings;
  Json json{{"schema_version", kSitesSchemaVersion},
            {"experiment", statement.experiment},
            {"baseline", statement.baseline},
            {"arm", statement.arm},
            {"candidate", statement.candidate},
            {"steps", statement.steps},
            {"seeds", findings.seeds},
            {"confidence", 1 - 2 * sites::kAlpha},
            {"runs", statement.runs},
            {"baseline_loss_nats", findings.baseline_loss},
            {"margin_percent", statement.margin_percent},
            {"margin_nats", findings.margin_nats},
            {"products", Json::array()},
            {"speed_model", SpeedJson(statement.speed)},
            {"sets", Json::array()},
            {"frontier", Json::array()},
            {"recipe", nullptr},
            {"notes", findings.notes}};
  for (const sites::ProductFinding& finding : findings.ranked) {
    json["products"].push_back(ProductJson(statement, finding));
  }
  for (const SetFinding& set : findings.sets) {
    json["sets"].push_back(SetJson(statement, set));
  }
  for (const SetFinding& step : findings.frontier) {
    json["frontier"].push_back(SetJson(statement, step));
  }
  if (findings.recipe) json["recipe"] = SetJson(statement, *findings.recipe);
  for (const std::string& note : statement.notes) json["notes"].push_back(note);
  return json.dump(2) + "\n";
}

}  // namespace isoloss::report
