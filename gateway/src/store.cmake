# SPDX-License-Identifier: Apache-2.0
# sl_gateway_store: the durable half of the gateway (writer, sinks, dead letter), a library of its
# own so that its tests link it without MQTT and HTTP. Included by gateway/src/CMakeLists.txt.
add_library(sl_gateway_store STATIC
  ${CMAKE_CURRENT_LIST_DIR}/doc_id.c
  ${CMAKE_CURRENT_LIST_DIR}/document.c
  ${CMAKE_CURRENT_LIST_DIR}/document_json.c
  ${CMAKE_CURRENT_LIST_DIR}/sink.c
  ${CMAKE_CURRENT_LIST_DIR}/sink_sqlite.c
  ${CMAKE_CURRENT_LIST_DIR}/dead_letter.c
  ${CMAKE_CURRENT_LIST_DIR}/replay.c
  ${CMAKE_CURRENT_LIST_DIR}/writer.c
  ${CMAKE_CURRENT_LIST_DIR}/writer_lane.c
  ${CMAKE_CURRENT_LIST_DIR}/writer_bury.c
  ${CMAKE_CURRENT_LIST_DIR}/json_member.c
  ${CMAKE_CURRENT_LIST_DIR}/message.c)
target_include_directories(sl_gateway_store PUBLIC ${CMAKE_CURRENT_LIST_DIR})
target_link_libraries(sl_gateway_store PUBLIC sl_loop sl_mqtt sl_base
  PRIVATE PkgConfig::SQLITE PkgConfig::CJSON)
if(SL_WITH_MONGO)
  pkg_check_modules(MONGOC REQUIRED IMPORTED_TARGET GLOBAL libmongoc-1.0)
  target_sources(sl_gateway_store PRIVATE ${CMAKE_CURRENT_LIST_DIR}/sink_mongo.c
    ${CMAKE_CURRENT_LIST_DIR}/sink_mongo_bson.c)
  target_compile_definitions(sl_gateway_store PUBLIC SL_WITH_MONGO)
  target_link_libraries(sl_gateway_store PRIVATE PkgConfig::MONGOC)
endif()
