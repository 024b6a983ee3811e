#include "isoloss/inspection/check_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "isoloss/base/error.h"
#include "isoloss/base/printable.h"
#include "isoloss/operations/operation_file.h"
#include "isoloss/precision/recipe_file.h"

namespace isoloss::inspection {
namespace {

using operations::Finding;
using operations::OpenPoint;
using operations::OperationFile;

void CheckSameRun(const std::vector<OperationFile>& files,
                  const precision::Recipe& recipe) {
  for (const OperationFile& file : files) {
    if (file.run != files[0].run) {
      ThrowError(ErrorKind::kConfig,
                 "{}: is of run `{}`, but {} is of run `{}`. Give files of one "
                 "run.",
                 file.path, Printable(file.run), files[0].path,
                 Printable(files[0].run));
    }
    if (!file.recipe.empty() && file.recipe != recipe.name) {
      ThrowError(ErrorKind::kConfig,
                 "{}: says that its recipe is `{}`, but --recipe is {}. Give "
                 "the one that the trainer was to follow.",
                 file.path, Printable(file.recipe), recipe.name);
    }
  }
}

bool Masks(const std::string& tensor, float value) {
  return value < 0 && std::isinf(value) &&
         (tensor == "logits" || tensor == "scores" || tensor == "bias");
}

std::vector<NonFiniteTensor> NonFiniteOf(
    const std::vector<OperationFile>& files) {
  std::vector<NonFiniteTensor> result;
  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t i = 0; i < files[f].operations.size(); ++i) {
      const operations::Operation& operation = files[f].operations[i];
      const bool is_skipped =
          operation.is_update() && operation.texts.contains("expected");
      for (const auto& [name, tensor] : operation.floats) {
        const int64_t count =
            std::ranges::count_if(tensor.values, [&](float value) {
              return !std::isfinite(value) && !Masks(name, value);
            });
        if (count == 0) continue;
        result.push_back({f, i, name, count,
                          static_cast<int64_t>(tensor.values.size()),
                          is_skipped && name == "gradient"});
      }
    }
  }
  return result;
}

}  // namespace

system::ExitCode CheckedTensors::Outcome() const {
  const bool has_bad_state = std::ranges::any_of(
      non_finite, [](const auto& found) { return found.is_state_after(); });
  if (wrong() > 0 || has_bad_state || !unexpected.empty())
    return system::ExitCode::kFail;
  return is_complete() ? system::ExitCode::kPass
                       : system::ExitCode::kInconclusive;
}

bool CheckedTensors::is_complete() const {
  const bool is_empty = std::ranges::all_of(findings, [](const Finding& f) {
    return f.comparison.Row().elements == 0;
  });
  const bool is_open = std::ranges::any_of(
      open, [](const OpenPoint& point) { return point.forbids_pass; });
  return !is_empty && !is_open && not_finite() == 0;
}

int64_t CheckedTensors::not_finite() const {
  return std::ranges::count(non_finite, false, &NonFiniteTensor::is_expected);
}

bool CheckedTensors::has_known_sums() const {
  return std::ranges::any_of(
      findings, [](const Finding& finding) { return !finding.sums.empty(); });
}

int64_t CheckedTensors::wrong() const {
  return std::ranges::count_if(findings,
                               [](const Finding& f) { return !f.is_right(); });
}

int64_t CheckedTensors::left_out() const {
  return std::ranges::count(modules, false,
                            &operations::ModuleChoice::quantized);
}

CheckedTensors CheckTensors(const CheckTensorsRequest& request,
                            Executor& executor) {
  CheckedTensors checked = {
      .recipe = precision::RecipeByNameOrFile(request.recipe),
      .files = {},
      .findings = {}};
  for (const std::filesystem::path& path : request.dumps) {
    checked.files.push_back(operations::ReadOperations(path));
  }
  CheckSameRun(checked.files, checked.recipe);
  checked.findings = operations::CheckOperations(checked.files, checked.recipe,
                                                 request.options, executor);
  checked.non_finite = NonFiniteOf(checked.files);
  checked.open = operations::OpenPointsOf(checked.files);
  for (const Finding& finding : checked.findings) {
    if (finding.open.empty()) continue;
    checked.open.push_back(
        {finding.file, finding.module, finding.open, /*forbids_pass=*/true});
  }
  std::erase_if(checked.findings,
                [](const Finding& finding) { return !finding.open.empty(); });
  if (checked.recipe.quantizes()) {
    const operations::ModuleChoices modules(checked.files, checked.recipe,
                                            request.options);
    checked.modules = modules.all();
    checked.pattern_remarks = modules.remarks();
  }
  if (request.audits || request.expects_recipe) {
    checked.audits = operations::AuditModules(checked.files, checked.recipe,
                                              request.options);
    if (request.expects_recipe) {
      checked.unexpected = UnexpectedModules(checked.audits);
    }
  }
  return checked;
}

}  // namespace isoloss::inspection
