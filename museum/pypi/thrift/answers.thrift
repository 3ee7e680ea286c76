// answers/ was made of this by Thrift's compiler 0.17.0: thrift --gen py answers.thrift
service Answers {
  i32 answer(1: i32 question)
}
