// Verifies the operations that work element by element: copies, residual
// additions, SwiGLU and embedding.
#pragma once

#include <string>
#include <vector>

#include "isoloss/step_checks/step_inputs.h"

namespace isoloss::step_checks {

/// Tensor `name` is a copy of tensor `of`.
struct CopyPlace {
  std::string name;
  std::string of;
};
std::vector<CopyPlace> CopyPlaces(const model::ModelConfig& config);
void CheckCopy(const StepInputs& inputs, const CopyPlace& place,
               ReportSink& sink);

/// sum = round(x + y): one FP32 addition, then the grid's rounding.
struct AddPlace {
  std::string sum;
  std::string x;
  std::string y;
};
std::vector<AddPlace> AddPlaces(const model::ModelConfig& config);
void CheckAdd(const StepInputs& inputs, const AddPlace& place,
              ReportSink& sink);

/// Returns the names of all feed-forwards: dense, routed and shared.
std::vector<std::string> FeedForwards(const model::ModelConfig& config);
/// Verifies w2_activation = round(s up) with s = round(z sigmoid(z)), z of w1
/// and up of w3. If the combine weight is applied here, the row is multiplied
/// by its weight and rounded once more.
/// Bounds   sigmoid within 3 ulp (docs/numerics.md, section 12), that is 6
///          unit roundoffs; each product by one rounding.
void CheckSwigluForward(const StepInputs& inputs, const std::string& name,
                        ReportSink& sink);
/// Verifies w3_gradient = round(dh s) and w1_gradient = round(round(dh up) d),
/// where d = q (z (1 - q) + 1), q = sigmoid(z) and dh = w2_dgrad.
/// Bounds   as above; 1 - q and z (1 - q) + 1 by one rounding each.
void CheckSwigluBackward(const StepInputs& inputs, const std::string& name,
                         ReportSink& sink);

/// The output must have exactly the bits of the table's rows.
void CheckEmbedding(const StepInputs& inputs, ReportSink& sink);
/// The gradient is the FP32 sum of the gradients at a token's places. A tied
/// head adds its weight gradient.
void CheckEmbeddingGradient(const StepInputs& inputs, ReportSink& sink);

void AddElementwiseParts(const StepInputs& inputs,
                         std::vector<CheckPart>& parts);

}  // namespace isoloss::step_checks
