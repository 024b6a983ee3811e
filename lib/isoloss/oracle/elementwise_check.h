// The oracle of everything that works element by element: copies, residual
// additions, SwiGLU, embedding.
#pragma once

#include <string>
#include <vector>

#include "isoloss/oracle/step_inputs.h"

namespace isoloss::oracle {

/// A tensor that is another one by another name.
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

/// Names of all feed-forwards: dense, routed, shared.
std::vector<std::string> FeedForwards(const model::ModelConfig& config);
/// w2_activation = round(s up), s = round(z sigmoid(z)), z of w1, up of w3;
/// times the row's combine weight, rounded once more, if it is applied there.
/// Bounds   sigmoid within 3 ulp (docs/numerics.md, section 12), that is 6
///          unit roundoffs; each product by one rounding.
void CheckSwigluForward(const StepInputs& inputs, const std::string& name,
                        ReportSink& sink);
/// w3_gradient = round(dh s); w1_gradient = round(round(dh up) d), d = q (z (1
/// - q) + 1), q = sigmoid(z), dh = w2_dgrad.
/// Bounds   as above; 1 - q and z (1 - q) + 1 by one rounding each.
void CheckSwigluBackward(const StepInputs& inputs, const std::string& name,
                         ReportSink& sink);

/// Rows of the table, exactly.
void CheckEmbedding(const StepInputs& inputs, ReportSink& sink);
/// Sum of the gradients of a token's places; with a tied head its weight
/// gradient too. FP32.
void CheckEmbeddingGradient(const StepInputs& inputs, ReportSink& sink);

void AddElementwiseParts(const StepInputs& inputs,
                         std::vector<CheckPart>& parts);

}  // namespace isoloss::oracle
