#include <fmt/format.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "isoloss/base/atomic_file.h"
#include "isoloss/base/error.h"
#include "isoloss/base/threads.h"
#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/json_file.h"
#include "isoloss/report/heartbeat.h"
#include "isoloss/report/sites.h"
#include "isoloss/studies/gradient_error.h"
#include "isoloss/studies/sites.h"
#include "isoloss/train/cost.h"

namespace isoloss::studies {
namespace {

namespace fs = std::filesystem;
using Errors = std::vector<std::vector<double>>;

Errors ReadErrors(const fs::path& path, size_t products) {
  const campaign::JsonFile file(path, "file of gradient errors");
  file.Check(R"({"errors": [["n"]]})");
  Errors errors;
  for (const document::Json& of_product : file.json()["errors"]) {
    std::vector<double> values;
    for (const document::Json& value : of_product) {
      values.push_back(value.is_null()
                           ? std::numeric_limits<double>::quiet_NaN()
                           : value.get<double>());
    }
    errors.push_back(std::move(values));
  }
  if (errors.size() != products) {
    ThrowError(ErrorKind::kFormat,
               "{}: it has errors of {} products, but the plan has {}. Remove "
               "it, and it is made anew.",
               path.string(), errors.size(), products);
  }
  return errors;
}

void WriteErrors(const fs::path& path, const Errors& errors) {
  document::Json json{{"errors", document::Json::array()}};
  for (const std::vector<double>& of_product : errors) {
    json["errors"].push_back(of_product);  // what is not finite becomes null
  }
  WriteFileAtomically(path, json.dump(2) + "\n");
}

}  // namespace

fs::path ErrorsFile(const SitesPlan& plan) {
  return plan.study.folder / "gradient_errors.json";
}

std::optional<Errors> ProductErrors(const SitesPlan& plan, bool may_measure) {
  const fs::path path = ErrorsFile(plan);
  const size_t products = plan.products.products().size();
  if (fs::exists(path)) return ReadErrors(path, products);
  if (!may_measure) return Errors();
  const train::Experiment& experiment = plan.study.cells.front().experiment;
  // The arms behind the baseline and all products.
  const std::span<const train::Arm> alone =
      std::span(experiment.arms).subspan(2, products);
  const std::array<int64_t, 2> steps = {1, experiment.train.steps};
  report::Heartbeat heartbeat;
  ThreadTeam team(train::CrewFor(experiment, 1).workers);
  GradientErrorHooks hooks;
  hooks.stop = &campaign::InterruptFlag();
  hooks.on_progress = [&](size_t done, size_t of) {
    heartbeat.Set(fmt::format("sites: gradients, {} of {} steps", done, of));
  };
  Errors errors =
      GradientErrors(experiment, experiment.arms.front(), alone,
                     experiment.train.seeds.front(),
                     train::LoadCorpusOf(experiment), steps, team, hooks);
  if (campaign::InterruptFlag().load()) return std::nullopt;
  WriteErrors(path, errors);
  return errors;
}

void WriteSites(const SitesPlan& plan, const sites::Statement& statement) {
  const fs::path& folder = plan.study.folder;
  WriteFileAtomically(folder / "sites.json",
                      report::RenderSitesJson(statement));
  WriteFileAtomically(folder / "sites.svg", report::RenderSitesSvg(statement));
  if (statement.recipe_text.empty()) {
    fs::remove(folder / "recipe.toml");
    return;
  }
  WriteFileAtomically(folder / "recipe.toml", statement.recipe_text);
}

}  // namespace isoloss::studies
