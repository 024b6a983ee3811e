// What a verdict on precision rests on, as JSON.
#pragma once

#include "isoloss/document/json.h"
#include "isoloss/gate/verdict.h"

namespace isoloss::report {

/// The value of key `precision` of verdict.json; null if the judgement has no
/// such measures.
document::Json PrecisionJson(const gate::Judgement& judgement);

}  // namespace isoloss::report
